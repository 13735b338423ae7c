"""Configurations against schemas of other people's servers, hostile ones included."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from gateway.rewards.config_schema import config_violations, parse_config_schema

FORMAT = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
        "strict": {"type": "boolean", "default": True},
        "weight": {"type": "number", "minimum": 0},
        "column": {"type": "string"},
    },
    "additionalProperties": False,
    "required": ["column"],
}


def check(schema: object, config: dict[str, Any]) -> list[tuple[str, str]]:
    parsed = parse_config_schema(json.dumps(schema), "r")
    return [(v.field, v.message) for v in config_violations(parsed, config, "rewards[1].config")]


def test_everything_wrong_is_told_at_once_by_its_path() -> None:
    found = dict(check(FORMAT, {"tags": ["think", "Answer"], "strict": "yes", "weight": -1, "wieght": 2}))
    assert found == {
        "rewards[1].config.tags[1]": "\"Answer\" does not match '^[a-z]+$'",
        "rewards[1].config.strict": "\"yes\" is not of type 'boolean'; the default is true",
        "rewards[1].config.weight": "-1 is less than the minimum of 0",
        "rewards[1].config.wieght": "2: there is no such field; it takes tags, strict, weight, column",
        "rewards[1].config.column": "is missing",
    }
    assert check(FORMAT, {"tags": ["think"], "weight": 0.5, "column": "a"}) == []


def test_a_reward_without_a_schema_takes_no_configuration() -> None:
    assert parse_config_schema("", "r") is None
    assert config_violations(None, {}, "f") == []
    (violation,) = config_violations(None, {"a": 1}, "f")
    assert violation.message == '{"a": 1}: the reward takes no configuration; leave it out'


def test_drafts_that_a_schema_names_are_honoured() -> None:
    tuples = {"properties": {"a": {"items": [{"type": "string"}]}}}
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", **tuples}
    assert check(draft_7, {"a": [1]}) == [("rewards[1].config.a[0]", "1 is not of type 'string'")]


def exponential() -> dict[str, Any]:
    levels = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    return {"$defs": {**levels, "d40": {}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "config"),
    [
        ("[" * 100_000, {"a": 1}),
        ([1], {"a": 1}),
        ({"type": "nonsense"}, {"a": 1}),
        ({"$schema": ["x"]}, {"a": 1}),
        ({"$id": "http://[", "$ref": "x"}, {"a": 1}),
        ({"$ref": "#"}, {"a": 1}),
        ({"$ref": "#/nowhere"}, {"a": 1}),
        ({"description": "x" * 600_000}, {"a": 1}),
        (exponential(), {"a": 1}),
        ({"properties": {"a": {"pattern": "^(?=x)x"}}}, {"a": "y"}),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{} for _ in range(15_000)]}),
    ],
)
def test_a_hostile_schema_costs_little_and_refuses_nobody(schema: object, config: dict[str, Any]) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    parsed = parse_config_schema(text, "r")
    began = time.process_time()
    assert config_violations(parsed, config, "f") == []
    assert time.process_time() - began < 2.0


def test_a_pattern_that_python_would_need_an_age_for_is_linear_here() -> None:
    began = time.process_time()
    assert len(check({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 5_000 + "!"})) == 1
    assert time.process_time() - began < 2.0


def test_a_schema_with_many_branches_does_not_multiply_a_large_value() -> None:
    schema = parse_config_schema(json.dumps({"anyOf": [{"type": "null"}] * 1_000}), "r")
    tracemalloc.start()
    config_violations(schema, {"a": "x" * 60_000}, "f")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


def test_no_schema_makes_the_gateway_fetch_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    assert check({"$ref": "http://127.0.0.1:9/schema.json"}, {"a": 1}) == []


def test_a_configuration_is_bounded_too() -> None:
    ((field, message),) = check({}, {"a": "x" * 600_000})
    assert (field, message) == (
        "rewards[1].config",
        "takes 600,009 bytes as JSON; at most 524,288 are accepted",
    )


def test_the_reason_outlives_a_long_value_and_one_is_told_for_a_field() -> None:
    schema = {
        "properties": {
            "pattern": {"type": "string", "maxLength": 500, "default": None},
            "mode": {"type": "string", "enum": ["a", "b"]},
        }
    }
    found = dict(check(schema, {"pattern": "x" * 501, "mode": 5}))
    assert "is too long" in found["rewards[1].config.pattern"]
    assert len(found["rewards[1].config.pattern"]) < 250
    assert set(found) == {"rewards[1].config.pattern", "rewards[1].config.mode"}
    assert check({"properties": {"on": {"type": "integer"}}}, {"on": True}) == [
        ("rewards[1].config.on", "true is not of type 'integer'")
    ]
