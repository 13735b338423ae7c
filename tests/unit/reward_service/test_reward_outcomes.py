"""What a reward's function returns or raises becomes an outcome; a failure never becomes a number."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from plaudit.types.scoring import Completion, Failed, FailureCode, NotApplicable, Outcome, Prompt, Scored
from reward_service import Item, Reward

ITEM: Item[Any] = Item(Prompt("g", ()), Completion("c", "text"), {})


async def outcome_of(answer: Any, **description: Any) -> Outcome:
    async def function(item: Item) -> Any:
        return answer

    reward = Reward(function, name="mine", description="Returns what it is told to.", **description)
    (outcome,) = await reward.score([ITEM])
    return outcome


async def outcomes_of(answers: Any, count: int) -> list[Outcome]:
    async def function(items: list[Item]) -> Any:
        return answers

    return await Reward(function, name="mine", description="Returns what it is told to.").score(
        [ITEM] * count
    )


def assert_fault(outcome: Outcome, *parts: str) -> None:
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.INTERNAL
    assert outcome.retry_delay is None
    for part in ("reward mine", *parts):
        assert part in outcome.message


@pytest.mark.parametrize(
    ("answer", "value"),
    [(0.5, 0.5), (1, 1.0), (True, 1.0), (False, 0.0), (Fraction(1, 4), 0.25), (-0.0, 0.0), (10**300, 1e300)],
)
async def test_a_real_number_is_a_score(answer: Any, value: float) -> None:
    assert await outcome_of(answer) == Scored(value)


async def test_none_is_not_applicable() -> None:
    assert await outcome_of(None) == NotApplicable()


async def test_details_are_kept() -> None:
    scored = Scored(0.5, {"part": 0.25}, "because")
    assert await outcome_of(scored) == scored
    assert await outcome_of(NotApplicable("no test cases")) == NotApplicable("no test cases")
    failed = Failed(FailureCode.UNAVAILABLE, "the judge is down", 2.5)
    assert await outcome_of(failed) == failed


@pytest.mark.parametrize(
    "answer",
    [math.nan, math.inf, -math.inf, Scored(math.nan), 10**400, Scored(float("inf"), explanation="much")],
)
async def test_what_is_not_finite_is_a_failure(answer: Any) -> None:
    assert_fault(await outcome_of(answer), "finite")


@pytest.mark.parametrize("answer", ["0.5", b"1", [1.0], {"value": 1}, 1j, Decimal(1), object()])
async def test_what_is_no_number_is_a_failure(answer: Any) -> None:
    assert_fault(await outcome_of(answer), "return a float, Scored, NotApplicable, Failed, or None")


@pytest.mark.parametrize("answer", [-0.001, 1.001, 7, Scored(15.0)])
async def test_what_is_out_of_range_is_a_failure_and_never_clamped(answer: Any) -> None:
    assert_fault(await outcome_of(answer, min_value=0.0, max_value=1.0), "outside its declared range [0, 1]")


async def test_the_ends_of_the_range_belong_to_it() -> None:
    for value in (0.0, 1.0):
        assert await outcome_of(value, min_value=0.0, max_value=1.0) == Scored(value)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (Scored(1.0, {"x": math.nan}), "a metric is finite"),
        (Scored(1.0, {"x": "1"}), "a metric is finite"),  # type: ignore[dict-item]
        (Scored(1.0, {"": 1.0}), "a name is text"),
        (Scored(1.0, {str(i): 1.0 for i in range(65)}), "at most 64"),
        (Scored("1"), "which is no number"),  # type: ignore[arg-type]
        (Failed("broken", "x"), "use FailureCode"),  # type: ignore[arg-type]
        (Failed(FailureCode.UNAVAILABLE, "x", -1.0), "it is seconds"),
    ],
)
async def test_details_that_are_wrong_are_a_failure(answer: Any, part: str) -> None:
    assert_fault(await outcome_of(answer), part)


async def test_texts_travel_as_valid_utf8_of_at_most_4_kib() -> None:
    outcome = await outcome_of(Scored(1.0, explanation="\ud83d" + "é" * 5000))
    assert isinstance(outcome, Scored)
    assert outcome.explanation.startswith("?éé")
    assert outcome.explanation.endswith("é…")
    assert 4090 < len(outcome.explanation.encode()) <= 4096
    failed = await outcome_of(Failed(FailureCode.INVALID, "bad \ud83d text"))
    assert failed == Failed(FailureCode.INVALID, "bad ? text")


async def test_what_is_raised_names_the_line_of_the_reward() -> None:
    async def function(item: Item) -> float:
        """Breaks."""
        return int("x\ud83d")  # the line

    line = function.__code__.co_firstlineno + 2
    (outcome,) = await Reward(function, name="mine").score([ITEM])
    assert_fault(outcome, "raised ValueError", f"test_reward_outcomes.py:{line}")


async def test_an_error_within_a_library_names_the_line_that_called_it() -> None:
    import json

    async def function(item: Item) -> float:
        """Breaks in a library."""
        json.loads("{")
        return 1.0

    line = function.__code__.co_firstlineno + 2
    (outcome,) = await Reward(function, name="mine").score([ITEM])
    assert_fault(outcome, "raised JSONDecodeError", f"test_reward_outcomes.py:{line}")


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), RecursionError(), TimeoutError()])
async def test_no_exception_gets_out(error: BaseException) -> None:
    async def function(items: list[Item]) -> list[float]:
        """Raises."""
        raise error

    outcomes = await Reward(function, name="mine").score([ITEM, ITEM])
    assert len(outcomes) == 2
    for outcome in outcomes:
        assert_fault(outcome, f"raised {type(error).__name__}")


async def test_the_cancellation_of_the_call_itself_gets_out() -> None:
    async def function(item: Item) -> float:
        """Takes long."""
        await asyncio.sleep(60)
        return 1.0

    task = asyncio.create_task(Reward(function, name="mine").score([ITEM]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_list_is_answered_item_by_item() -> None:
    answers = [1.0, None, Scored(0.5), "x", math.nan]
    first, second, third, fourth, fifth = await outcomes_of(answers, 5)
    assert (first, second, third) == (Scored(1.0), NotApplicable(), Scored(0.5))
    assert_fault(fourth, '"x" (str)')
    assert_fault(fifth, "finite")


async def test_a_function_may_use_up_its_list() -> None:
    async def function(items: list[Item]) -> list[float]:
        """Empties its list."""
        return [float(len(items.pop().text)) for _ in range(3)]

    assert await Reward(function).score([ITEM] * 3) == [Scored(4.0)] * 3


async def test_an_array_is_a_list() -> None:
    class Array:  # as numpy's, which is no Sequence
        def __init__(self, *values: float) -> None:
            self.values = values

        def __len__(self) -> int:
            return len(self.values)

        def __iter__(self) -> Any:
            return iter(self.values)

        def __contains__(self, value: object) -> bool:
            return value in self.values

    assert await outcomes_of(Array(1.0, 0.0), 2) == [Scored(1.0), Scored(0.0)]


@pytest.mark.parametrize("answers", [[1.0], [1.0] * 4, []])
async def test_a_wrong_number_of_answers_fails_them_all(answers: list[float]) -> None:
    for outcome in await outcomes_of(answers, 3):
        assert_fault(outcome, f"returned {len(answers)} answers for 3 items")


@pytest.mark.parametrize(
    "answers", [1.0, "abc", None, {"a": 1, "b": 2, "c": 3}, {1.0, 2.0, 3.0}, iter([1, 2, 3])]
)
async def test_what_is_no_list_fails_them_all(answers: Any) -> None:
    outcomes = await outcomes_of(answers, 3)
    assert len(outcomes) == 3
    for outcome in outcomes:
        assert_fault(outcome, "return a list with one answer per item")
