"""repetition_penalty: shares counted by hand, and by another implementation."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import Completion, Prompt, Scored
from reward_service import Item
from reward_service.rewards import repetition_penalty
from reward_service.rewards.repetition_penalty import repeated_share, words_of


async def scored(text: str, **config: Any) -> Scored:
    read = repetition_penalty.config.read(json.dumps(config), "config")
    item: Item[Any] = Item(Prompt("g", ()), Completion("c", text, 5, prefill="again " * 99), read)
    (result,) = await repetition_penalty.score([item])
    assert isinstance(result, Scored), result
    return result


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 3.5 kg", ["It", "'", "s", "3", ".", "5", "kg"]),
        ("!!!", ["!"] * 3),
        ("a_1\tb\n\nc", ["a_1", "b", "c"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("e\N{COMBINING ACUTE ACCENT}te\N{COMBINING ACUTE ACCENT}", ["e\u0301te\u0301"]),
        ("Привет, мир", ["Привет", ",", "мир"]),
        ("🙂🙂", ["🙂", "🙂"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("text", "config", "share"),
    [
        ("a b a b a b", {"ngram_size": 2}, 3 / 5),  # ab ba ab ba ab
        ("A b a B", {"ngram_size": 2}, 1 / 3),
        ("one two three", {"ngram_size": 3}, 0.0),
        ("one two", {"ngram_size": 3}, 0.0),
        ("same same same same", {"ngram_size": 1}, 3 / 4),
        ("abcabc", {"unit": "characters", "ngram_size": 3}, 1 / 4),  # abc bca cab abc
        ("abcabc", {}, 0.0),  # one word
        ("", {"ngram_size": 1}, 0.0),
    ],
)
async def test_share(text: str, config: dict[str, Any], share: float) -> None:
    result = await scored(text, **config)
    assert result.value == pytest.approx(-share)
    assert result.metrics == {"repeated_share": pytest.approx(share)}


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 5))
def test_share_is_what_counting_each_ngram_gives(units: list[str], size: int) -> None:
    counts = Counter("".join(units[i : i + size]) for i in range(len(units) - size + 1))
    repeats = sum(count - 1 for count in counts.values())
    assert repeated_share(units, size) == pytest.approx(repeats / max(1, counts.total()))


async def test_it_falls_between_the_shares() -> None:
    text = "same same same same"  # a share of 3/4
    assert (await scored(text, ngram_size=1, allowed_share=0.75)).value == 0.0
    assert (await scored(text, ngram_size=1, allowed_share=0.5)).value == pytest.approx(-0.5)
    assert (await scored(text, ngram_size=1, allowed_share=0.5, full_share=0.75)).value == -1.0
    assert (await scored(text, ngram_size=1, full_share=0.1)).value == -1.0


@pytest.mark.parametrize(
    ("config", "path", "part"),
    [
        ({"ngram_size": 0}, "ngram_size", "greater than or equal to 1"),
        ({"ngram_size": 65}, "ngram_size", "64"),
        ({"unit": "tokens"}, "unit", "words"),
        ({"allowed_share": 1.0}, "allowed_share", "less than 1"),
        ({"allowed_share": 0.5, "full_share": 0.5}, "full_share", "above allowed_share, which is 0.5"),
    ],
)
def test_a_wrong_config_is_refused(config: dict[str, Any], path: str, part: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        repetition_penalty.config.read(json.dumps(config), "config")
    (violation,) = error.value.violations
    assert violation.field == f"config.{path}"
    assert part in violation.message


@pytest.mark.parametrize("text", ["a " * 10**6, "!" * 10**6, "".join(map(chr, range(0x4E00, 0x9FFF))) * 50])
@pytest.mark.parametrize("unit", ["words", "characters"])
async def test_hostile_text_takes_no_time(unit: str, text: str) -> None:
    started = time.perf_counter()
    await scored(text, unit=unit, ngram_size=64)
    assert time.perf_counter() - started < 10
