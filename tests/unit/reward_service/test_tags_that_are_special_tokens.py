"""Tags that a tokenizer holds as special tokens are cut out of the text: rewards find them all the same."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.types.scoring import Completion, FinishReason, Prompt, Scored
from reward_service import Item
from reward_service.rewards import exact_answer, format_check
from reward_service.rewards._special_tokens import tags_marks, turn_with_marks
from reward_service.rewards.math_answer import MathAnswerConfig, _question

RAW = "<think>7 + 5</think>\n<answer>12</answer><|im_end|>"


def item(text: str, raw_text: str, config: Any = None, prefill: str = "") -> Item[Any]:
    columns = {"answer": 12}
    completion = Completion("c", text, 9, FinishReason.STOP, prefill, raw_text)
    return Item(Prompt("g", (), columns), completion, config)


def without(raw_text: str, *special: str) -> str:
    """As a tokenizer decodes it without these special tokens."""
    for token in special:
        raw_text = raw_text.replace(token, "")
    return raw_text


async def score(reward: Any, config_json: str, text: str, raw_text: str, prefill: str = "") -> float:
    config = reward.config.read(config_json, "config")
    (outcome,) = await reward.score([item(text, raw_text, config, prefill)])
    assert isinstance(outcome, Scored), outcome
    return outcome.value


@pytest.mark.parametrize(
    "special",
    [
        ("<think>", "</think>", "<answer>", "</answer>", "<|im_end|>"),
        ("<answer>", "</answer>", "<|im_end|>"),
        ("</think>", "<|im_end|>"),
        ("<|im_end|>",),
    ],
    ids=["all of them", "those of the answer", "one that closes", "none of them"],
)
@pytest.mark.parametrize("grading", ["strict", "graded"])
async def test_the_form_is_seen(special: tuple[str, ...], grading: str) -> None:
    config = f'{{"grading": "{grading}", "allow_text_outside": false}}'
    assert await score(format_check, config, without(RAW, *special), RAW) == 1.0
    wrong = RAW.replace("</think>", "")
    assert await score(format_check, config, without(wrong, *special), wrong) < 1.0


async def test_what_the_template_began_is_part_of_it() -> None:
    raw = RAW.removeprefix("<think>")
    text = without(raw, "</think>", "<answer>", "</answer>", "<|im_end|>")
    assert await score(format_check, "{}", text, raw, prefill="<think>") == 1.0


async def test_the_answer_is_found() -> None:
    text = without(RAW, "<answer>", "</answer>", "<|im_end|>")
    assert await score(exact_answer, "{}", text, RAW) == 1.0
    other = RAW.replace("12", "13")
    assert (
        await score(exact_answer, "{}", without(other, "<answer>", "</answer>", "<|im_end|>"), other) == 0.0
    )
    asked = _question(item(text, RAW, MathAnswerConfig(extract="tag")))
    assert asked == {"answer": "12"}


def test_a_special_token_between_tags_is_left_where_it_is() -> None:
    """It cannot be told how much of the text it stood in for."""
    raw = "a<pad>b<answer>12</answer><|im_end|>"
    marks = tags_marks("answer")
    assert turn_with_marks(item("ab12", raw), marks) == raw
    assert turn_with_marks(item("ab<answer>12</answer>", raw), marks) == "ab<answer>12</answer>"


@given(st.lists(st.sampled_from(["<t>", "</t>", "a", "t>", " ", "ü"]), max_size=12), st.booleans())
def test_the_marks_are_where_the_model_wrote_them(tokens: list[str], ends: bool) -> None:
    raw = "".join(tokens) + "<|end|>" * ends
    found = turn_with_marks(item(without(raw, "<t>", "</t>", "<|end|>"), raw, prefill="p"), tags_marks("t"))
    assert found == "p" + "".join(tokens)


def test_hostile_text_takes_no_time() -> None:
    raw = "</answer><answer>" * 20_000 + "<|im_end|>"
    started = time.process_time()
    assert turn_with_marks(item("", raw), tags_marks("answer")) == raw.removesuffix("<|im_end|>")
    assert turn_with_marks(item("x", raw), tags_marks("answer")).startswith("</answer>")
    assert time.process_time() - started < 10
