"""format_check: tags, patterns and JSON Schemas; values worked out by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import Completion, Failed, FailureCode, FinishReason, Outcome, Prompt, Scored
from reward_service import Item
from reward_service.rewards import format_check

GOOD = "<think>7 + 5 is 12</think>\n<answer>12</answer>"


async def outcome(
    text: str, config_json: str = "{}", *, prefill: str = "", finish: FinishReason = FinishReason.STOP
) -> Outcome:
    config = format_check.config.read(config_json, "config")
    item: Item[Any] = Item(Prompt("g", ()), Completion("c", text, 5, finish, prefill), config)
    (result,) = await format_check.score([item])
    return result


async def value(text: str, config_json: str = "{}", **how: Any) -> float:
    result = await outcome(text, config_json, **how)
    assert isinstance(result, Scored), result
    return result.value


def refused(config_json: str) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as error:
        format_check.config.read(config_json, "rewards[0].config")
    return {v.field.removeprefix("rewards[0].config."): v.message for v in error.value.violations}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, 1.0),
        (f"Well. {GOOD} Done.", 1.0),
        ("", 0.0),
        ("12", 0.0),
        ("<answer>12</answer>", 0.0),
        ("<answer>12</answer><think>7 + 5</think>", 0.0),
        ("<think>a</think><answer></answer>", 0.0),
        ("<think> \n </think><answer>12</answer>", 0.0),
        ("<think>a</think><answer>12", 0.0),
        ("<think>a</think><answer>12</answer><answer>13</answer>", 0.0),
        ("<think>a<think>b</think><answer>12</answer>", 0.0),
        ("<think>a<answer>12</answer></think>", 0.0),
        ("</think>a<think><answer>12</answer>", 0.0),
        ("<THINK>a</THINK><answer>12</answer>", 0.0),
    ],
)
async def test_strict(text: str, expected: float) -> None:
    assert await value(text) == expected


async def test_the_prefill_of_the_template_is_part_of_the_turn() -> None:
    rest = "reason</think>\n<answer>42</answer>"
    assert await value(rest) == 0.0
    assert await value(rest, prefill="<think>\n") == 1.0
    assert await value("reason</think>\n42", '{"tags": ["think"]}', prefill="<think>") == 1.0


async def test_a_truncated_completion_is_not_well_formed() -> None:
    for config in ("{}", '{"pattern": "answer"}', '{"json_schema": {}}'):
        text = "1" if "schema" in config else GOOD
        assert await value(text, config) == 1.0
        assert await value(text, config, finish=FinishReason.LENGTH) == 0.0


async def test_text_outside_can_be_forbidden() -> None:
    config = '{"allow_text_outside": false}'
    assert await value(f"\n {GOOD} \n", config) == 1.0
    for text in (f"Well. {GOOD}", f"{GOOD} Done.", GOOD.replace("\n", "so")):
        assert await value(text, config) == 0.0


@pytest.mark.parametrize(
    ("text", "points"),
    [
        (GOOD, 7),
        ("", 0),
        ("<think>a", 0),
        ("<answer>12</answer>", 2),  # present, once
        ("<think>a</think>", 3),  # present, once, in order
        ("<think>a</think><answer>12", 3),
        ("<think>a</think><answer> </answer>", 3),
        ("<answer>12</answer><think>a</think>", 5),  # two present, two once, think in order
        ("<think>a</think><answer>1</answer><answer>2</answer>", 5),  # answer comes twice
        ("<think>a<answer>12</answer></think>", 5),  # answer opens before think closes
    ],
)
async def test_graded(text: str, points: int) -> None:
    assert await value(text, '{"grading": "graded"}') == pytest.approx(points / 7)


async def test_graded_never_gives_everything_to_what_is_truncated_or_has_text_outside() -> None:
    assert await value(GOOD, '{"grading": "graded"}', finish=FinishReason.LENGTH) == pytest.approx(6 / 7)
    strict = '{"grading": "graded", "allow_text_outside": false}'
    assert await value(f"Well. {GOOD}", strict) == pytest.approx(6 / 7)


async def test_graded_tells_its_parts() -> None:
    result = await outcome("<answer>12</answer>", '{"grading": "graded"}')
    assert isinstance(result, Scored)
    assert result.metrics == {"tags_present": 0.5, "tags_once": 0.5, "tags_in_order": 0.0}


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "a", " "]), max_size=9))
async def test_graded_is_whole_where_strict_is(parts: list[str]) -> None:
    text = "".join(parts)
    assert (await value(text, '{"grading": "graded"}') == 1.0) == (await value(text) == 1.0)


async def test_a_strict_zero_says_why() -> None:
    result = await outcome("<think>a</think>12")
    assert result == Scored(0.0, explanation="<answer> is missing")


async def test_pattern() -> None:
    config = r'{"pattern": "(?s)^<think>.*</think>\\s*<answer>\\d+</answer>$"}'
    assert await value("<think>a\nb</think> <answer>12</answer>", config) == 1.0
    assert await value("<think>a\nb</think> <answer>x</answer>", config) == 0.0
    assert await value("<answer>12</answer>", r'{"pattern": "\\d"}') == 1.0


@pytest.mark.parametrize(
    ("config", "path", "part"),
    [
        ('{"pattern": "("}', "pattern", "missing )"),
        (r'{"pattern": "(?=a)"}', "pattern", "no look-around"),
        (r'{"pattern": "(a)\\1"}', "pattern", "no backreferences"),
        (f'{{"pattern": "{"a" * 501}"}}', "pattern", "at most 500"),
        ('{"pattern": "(a?){1000}(a?){1000}"}', "pattern", "too large"),
        ('{"tags": []}', "tags", "at least 1"),
        ('{"tags": ["a b"]}', "tags[0]", "pattern"),
        ('{"tags": ["a", "a"]}', "tags", "named twice"),
        ('{"grading": "lenient"}', "grading", "strict"),
        ('{"pattern": "a", "grading": "graded"}', "grading", "there is a pattern in their place"),
        ('{"pattern": "a", "json_schema": {}}', "json_schema", "leave one of them out"),
        ('{"json_schema": {"type": "wrong"}}', "json_schema", "no JSON Schema"),
        ('{"json_schema": {"properties": {"a": {"pattern": "("}}}}', "json_schema", "missing )"),
        ('{"json_schema": {"patternProperties": {"a": {}}}}', "json_schema", "patternProperties is not"),
        ('{"json_schema": {"$ref": "http://127.0.0.1:9/x"}}', "json_schema", "leads outside"),
    ],
)
def test_a_wrong_config_is_refused_when_the_session_opens(config: str, path: str, part: str) -> None:
    found = refused(config)
    assert list(found) == [path]
    assert part in found[path]


SCHEMA = """{"json_schema": {
  "type": "object", "required": ["answer"], "additionalProperties": false,
  "properties": {
    "answer": {"type": "integer"},
    "unit": {"type": "string", "pattern": "^k[gm]$"},
    "tags": {"type": "array", "uniqueItems": true}
  }}}"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"answer": 12}', 1.0),
        (' {"answer": 12, "unit": "kg", "tags": [1, true, "1", {"a": 1}]} ', 1.0),
        ('{"answer": "12"}', 0.0),
        ('{"answer": 12, "unit": "mile"}', 0.0),
        ('{"answer": 12, "extra": 1}', 0.0),
        ('{"answer": 12, "tags": [1, 1.0]}', 0.0),
        ('{"answer": 12, "tags": [{"a": [1]}, {"a": [1]}]}', 0.0),
        ('{"answer": NaN}', 0.0),
        ("Answer: 42", 0.0),
        ("", 0.0),
        ("[" * 100_000, 0.0),
        ('{"answer": ' + "9" * 10_000 + "}", 0.0),
        ('{"answer": ' + "[" * 100 + "]" * 100 + "}", 0.0),
    ],
)
async def test_json_schema(text: str, expected: float) -> None:
    assert await value(text, SCHEMA) == expected


async def test_a_schema_that_never_ends_is_a_failure_and_not_a_score() -> None:
    result = await outcome("1", '{"json_schema": {"$ref": "#"}}')
    assert isinstance(result, Failed)
    assert result.code is FailureCode.INVALID


DEGENERATE: dict[str, Callable[[int], str]] = {
    "closing and opening": lambda n: "</think><answer>" * n,
    "opening": lambda n: "<think>a" * n,
    "pairs": lambda n: "<think>a</think>" * n,
    "nested": lambda n: "<think>" * n + "</think>" * n,
    "angle brackets": lambda n: "<" * (10 * n),
}


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("grading", ["strict", "graded"])
async def test_degenerate_text_takes_no_time(kind: str, grading: str) -> None:
    text = DEGENERATE[kind](8000)
    config = f'{{"grading": "{grading}"}}'
    best = 1.0
    for _ in range(5):
        started = time.perf_counter()
        await value(text, config)
        best = min(best, time.perf_counter() - started)
    assert best < 0.010


async def test_a_pattern_that_pins_backtracking_engines_takes_no_time() -> None:
    started = time.perf_counter()
    assert await value("a" * 40 + "b", '{"pattern": "^(a|aa)+$"}') == 0.0
    assert time.perf_counter() - started < 0.5


async def test_many_objects_that_must_be_unique_take_no_time() -> None:
    text = "[" + ",".join(f'{{"a": {i}}}' for i in range(20_000)) + "]"
    started = time.perf_counter()
    assert await value(text, '{"json_schema": {"uniqueItems": true}}') == 1.0
    assert time.perf_counter() - started < 5
