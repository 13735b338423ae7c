"""format_check: tags, patterns and JSON Schemas; values worked out by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import Completion, Failed, FailureCode, FinishReason, Outcome, Prompt, Scored
from reward_service import Item
from reward_service.rewards import format_check
from reward_service.rewards._json_schema import SchemaText

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
    assert await value("жaß", r'{"pattern": "^\\p{L}+$"}') == 1.0


MANY = {
    "$defs": {"a": {f"x{i}": 1 for i in range(20)}},
    "allOf": [{"$ref": "#/$defs/a"}] * 700,
}
CHAIN = {
    "$defs": {**{f"l{i}": {"$ref": f"#/$defs/l{i + 1}"} for i in range(40)}, "l40": True},
    "$ref": "#/$defs/l0",
}


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
        ('{"json_schema": {"$ref": "#/$defs/missing"}}', "json_schema", "leads nowhere"),
        ('{"json_schema": {"$id": "http://127.0.0.1:9/", "$ref": "#/x"}}', "json_schema", "leads nowhere"),
        (f'{{"json_schema": {{"const": "{"a" * 20_000}"}}}}', "json_schema", "of at most 20000"),
        ('{"json_schema": {"$ref": "#"}}', "json_schema", "refers to itself without end"),
        ('{"json_schema": {"anyOf": [{"$ref": "#/anyOf/0"}]}}', "json_schema", "refers to itself"),
        ('{"json_schema": {"$ref": "#/x-a", "x-a": {}}}', "json_schema", "leads nowhere"),
        ('{"json_schema": {"$ref": "#/required", "required": ["a"]}}', "json_schema", "leads nowhere"),
        ('{"json_schema": {"$ref": "#a"}}', "json_schema", "leads nowhere"),
        ('{"json_schema": {"items": {"$id": "http://a/"}}}', "json_schema", "leave it out"),
        (
            '{"json_schema": {"$schema": "http://json-schema.org/draft-07/schema#"}}',
            "json_schema",
            "write it in 2020-12",
        ),
        ('{"json_schema": {"pattern": 5}}', "json_schema", "#/pattern is 5, and pattern is text"),
        ('{"json_schema": {"uniqueItems": "x"}}', "json_schema", 'is "x"'),
        ('{"json_schema": {"maximum": 1e400}}', "json_schema", "too large"),
        ('{"json_schema": {"maxLength": -1}}', "json_schema", "at least 0"),
        (
            json.dumps({"json_schema": MANY}),
            "json_schema",
            "too much work",
        ),
        (json.dumps({"json_schema": CHAIN}), "json_schema", "make it flatter"),
        ('{"pattern": "(\\\\p{L} ){20}"}', "pattern", "steps of RE2"),
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


async def unjudged(schema: Any, text: str) -> str:
    """The message of the failure that a schema ends in."""
    result = await outcome(text, json.dumps({"json_schema": schema}))
    assert isinstance(result, Failed), result
    assert result.code is FailureCode.INVALID
    return result.message


VALID: list[dict[str, Any]] = [
    {"dependentRequired": {"pattern": ["a"]}},
    {"x-foo": {"pattern": 5, "$ref": "nowhere", "patternProperties": 1}},
    {"enum": [{"pattern": 5}, {"$ref": 7}]},
    {"const": {"patternProperties": {}}},
    {"default": {"$ref": 1}, "examples": [{"pattern": "("}]},
    {"properties": {"pattern": {"type": "integer"}, "$ref": {"type": "string"}}},
    {"$defs": {"pattern": {}, "a/b ~": {"type": "integer"}}, "$ref": "#/$defs/a~1b%20~0"},
    {"$defs": {"z": {"$anchor": "foo"}}, "allOf": [{"$ref": "#foo"}] * 900},
    {"dependencies": {"a": ["b"], "c": {"minimum": 1}}},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": ["integer", "null"]},
    {"properties": {"next": {"$ref": "#"}}, "maxLength": 3.0},
]
INVALID: list[dict[str, Any]] = [
    {"dependentRequired": {"pattern": "a"}},
    {"dependentRequired": {"a": ["b", "b"]}},
    {"pattern": 5},
    {"properties": {"a": {"pattern": 5}}},
    {"properties": [1]},
    {"properties": {"a": 5}},
    {"required": "a"},
    {"required": [1]},
    {"enum": 5},
    {"type": []},
    {"type": "text"},
    {"type": [["a"]]},
    {"multipleOf": 0},
    {"minimum": True},
    {"minLength": 1.5},
    {"allOf": []},
    {"allOf": {}},
    {"items": [{}]},
    {"not": None},
    {"$defs": 5},
    {"$ref": 5},
    {"$anchor": "a b"},
    {"$vocabulary": {"a": 1}},
    {"examples": {}},
    {"title": 1},
    {"deprecated": 1},
    {"dependencies": {"a": 1}},
]


@pytest.mark.parametrize("schema", VALID, ids=lambda schema: str(schema)[:60])
async def test_what_is_a_schema_is_taken(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    for text in ("1", "{}", "[]", '"a"'):
        assert isinstance(await outcome(text, json.dumps({"json_schema": schema})), Scored)


@pytest.mark.parametrize("schema", INVALID, ids=lambda schema: str(schema)[:60])
def test_what_is_none_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema(schema)
    assert list(refused(json.dumps({"json_schema": schema}))) == ["json_schema"]


KEYWORDS = sorted({keyword for schema in INVALID for keyword in schema} - {"$ref", "$vocabulary"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.sampled_from(["a", "integer", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYWORDS), VALUES, max_size=3))
def test_what_is_a_schema_is_what_the_meta_schema_says(schema: dict[str, Any]) -> None:
    expected = Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(schema)
    try:
        SchemaText(schema)
        taken = True
    except ValueError as error:
        assume("stands twice" not in str(error))
        taken = False
    assert taken == expected


def test_a_schema_that_is_nested_as_deep_as_a_config_may_be_is_told() -> None:
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"not": schema}
    assert "make it flatter" in refused(json.dumps({"json_schema": schema}))["json_schema"]


async def test_references_are_followed_as_the_library_follows_them() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"word": {"$anchor": "word", "type": "string", "pattern": "^a+$"}},
        "properties": {"next": {"$ref": "#"}, "a": {"$ref": "#word"}, "b": {"$ref": "#/$defs/word"}},
        "additionalProperties": False,
    }
    plain = Draft202012Validator(schema)
    for text in (
        '{"a": "aa", "next": {"next": {"b": "a"}}}',
        '{"next": {"a": "b"}}',
        '{"next": {"next": {"b": 1}}}',
    ):
        assert await value(text, json.dumps({"json_schema": schema})) == float(
            plain.is_valid(json.loads(text))
        )


STEPS: dict[str, Any] = {"items": {"$ref": "#"}}
for _ in range(20):
    STEPS = {"allOf": [STEPS]}


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ('"\\ud800"', {"type": "string", "pattern": "a"}, 0.0),
        ('{"\\ud800": 1}', {}, 0.0),
        ('"\\ud83d\\ude00"', {"type": "string"}, 1.0),
        ("1e400", {"multipleOf": 2}, 0.0),
        ("1e400", {}, 0.0),
        ("9" * 5000, {}, 0.0),
        ("9" * 400, {"multipleOf": 0.1}, 1.0),
        ("0.3", {"multipleOf": 0.1}, 1.0),
        ("0.35", {"multipleOf": 0.1}, 0.0),
        ("1e308", {"multipleOf": 1e-300}, 1.0),
        ("[" * 60 + "]" * 60, STEPS, 0.0),
        ("[[[]]]", STEPS, 1.0),
        ("[" * 60 + "]" * 60, {"items": {"$ref": "#"}}, 1.0),
    ],
)
async def test_a_text_that_cannot_be_judged_is_not_well_formed(
    text: str, schema: Any, expected: float
) -> None:
    assert await value(text, json.dumps({"json_schema": schema})) == expected


async def test_the_work_of_many_references_is_paid_for() -> None:
    schema = {"$defs": {"z": {"$anchor": "foo"}}, "items": {"allOf": [{"$ref": "#foo"}] * 900}}
    assert "too much work" in await unjudged(schema, json.dumps([1] * 1000))
    # The next text has a budget of its own.
    assert await value("[1]", json.dumps({"json_schema": schema})) == 1.0


async def test_numbers_of_one_hash_take_no_time() -> None:
    text = json.dumps([i * (2**61 - 1) for i in range(20_000)])
    started = time.perf_counter()
    assert await value(text, '{"json_schema": {"uniqueItems": true}}') == 1.0
    assert time.perf_counter() - started < 10


async def test_errors_that_repeat_a_large_value_are_paid_for() -> None:
    schema = {"anyOf": [{"type": "array"}] * 500}
    assert "too much work" in await unjudged(schema, json.dumps({"b": "x" * 1_000_000}))


async def test_errors_about_small_values_of_a_long_text_are_not() -> None:
    config = json.dumps({"json_schema": {"items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}})
    assert await value(json.dumps(list(range(2000))), config) == 1.0


async def test_large_texts_are_judged_where_the_schema_is_plain() -> None:
    row = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 0}}}
    config = json.dumps({"json_schema": {"type": "array", "items": row}})
    assert await value(json.dumps([{"a": i} for i in range(5000)]), config) == 1.0
    assert await value(json.dumps([{"a": i} for i in range(5000)] + [{"a": -1}]), config) == 0.0


DEGENERATE: dict[str, Callable[[int], str]] = {
    "closing and opening": lambda n: "</think><answer>" * n,
    "opening": lambda n: "<think>a" * n,
    "pairs": lambda n: "<think>a</think>" * n,
    "nested": lambda n: "<think>" * n + "</think>" * n,
    "angle brackets": lambda n: "<" * (10 * n),
}


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize(
    "config",
    [
        '{"grading": "strict"}',
        '{"grading": "graded"}',
        r'{"pattern": "(?s)^<think>.*?</think>\\s*<answer>.*?</answer>$"}',
        r'{"pattern": "(?s)<think>.*</think>.*<answer>.*</answer>"}',
    ],
)
async def test_degenerate_text_takes_no_time(kind: str, config: str) -> None:
    # Engines that backtrack take seconds for 8,000 repeats, and 400 times that for these.
    text = DEGENERATE[kind](160_000)
    started = time.perf_counter()
    assert await value(f"<think>{text}!", config) < 1.0
    assert time.perf_counter() - started < 10


async def test_a_pattern_that_pins_backtracking_engines_takes_no_time() -> None:
    started = time.perf_counter()
    assert await value("a" * 40 + "b", '{"pattern": "^(a|aa)+$"}') == 0.0
    assert time.perf_counter() - started < 10


async def test_many_objects_that_must_be_unique_take_no_time() -> None:
    text = "[" + ",".join(f'{{"a": {i}}}' for i in range(20_000)) + "]"
    started = time.perf_counter()
    assert await value(text, '{"json_schema": {"uniqueItems": true}}') == 1.0
    assert time.perf_counter() - started < 30
