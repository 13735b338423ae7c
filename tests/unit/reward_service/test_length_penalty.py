"""length_penalty: values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import Completion, Failed, FailureCode, Outcome, Prompt, Scored
from reward_service import Item
from reward_service.rewards import length_penalty


async def outcome(tokens: int, text: str = "text") -> Outcome:
    config = length_penalty.config.read('{"soft_limit": 100, "hard_limit": 300}', "config")
    item: Item[Any] = Item(Prompt("g", ()), Completion("c", text, tokens), config)
    (result,) = await length_penalty.score([item])
    return result


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (1, 0.0),
        (100, 0.0),
        (101, -0.005),
        (150, -0.25),
        (200, -0.5),
        (299, -0.995),
        (300, -1.0),
        (9000, -1.0),
    ],
)
async def test_it_falls_between_the_limits(tokens: int, expected: float) -> None:
    assert await outcome(tokens) == Scored(pytest.approx(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0.0), ("four", 0.0), ("twelve", -0.5), ("日本語です。", -0.5), ("a" * 99, -1.0)],
)
async def test_characters_can_be_counted_where_there_is_no_count_of_tokens(
    text: str, expected: float
) -> None:
    config = length_penalty.config.read('{"unit": "characters", "soft_limit": 4, "hard_limit": 8}', "config")
    item: Item[Any] = Item(Prompt("g", ()), Completion("c", text, 0, prefill="long" * 99), config)
    (result,) = await length_penalty.score([item])
    assert result == Scored(expected)


async def test_an_empty_completion_has_no_tokens_and_no_penalty() -> None:
    assert await outcome(0, "") == Scored(0.0)


async def test_an_unknown_length_is_a_failure() -> None:
    result = await outcome(0)
    assert isinstance(result, Failed)
    assert result.code is FailureCode.INVALID
    assert "token_count" in result.message


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ("{}", ["soft_limit", "hard_limit"]),
        ('{"soft_limit": 10, "hard_limit": 10}', ["hard_limit"]),
        ('{"soft_limit": -1, "hard_limit": "x"}', ["soft_limit", "hard_limit"]),
        ('{"soft_limit": 1.5, "hard_limit": 3}', ["soft_limit"]),
    ],
)
def test_wrong_limits_are_refused(config: str, fields: list[str]) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        length_penalty.config.read(config, "config")
    assert [v.field for v in error.value.violations] == [f"config.{field}" for field in fields]
