"""A reward's configuration: everything wrong in it at once, by field."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from plaudit.errors import InvalidArgumentError
from reward_service._config import config_reader

SCHEMA = {
    "type": "object",
    "properties": {
        "tag": {"type": "string", "minLength": 1},
        "weights": {"type": "array", "items": {"type": "number"}},
        "deep": {"type": "object", "required": ["a", "b"]},
    },
    "required": ["tag", "mode"],
    "additionalProperties": False,
}


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tag: str = Field(examples=["answer"])
    limit: int = Field(default=3, ge=1, examples=[3])
    mode: Literal["a", "b"] = "a"


def wrong(declared: Any, config_json: str) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as error:
        config_reader(declared).read(config_json, "rewards[0].config")
    return {violation.field: violation.message for violation in error.value.violations}


def test_a_model_is_read() -> None:
    config = config_reader(Config).read('{"tag": "x", "limit": 50}', "config")
    assert config == Config(tag="x", limit=50)
    assert type(config.limit) is int


def test_a_model_names_every_wrong_field_with_value_and_way_out() -> None:
    found = wrong(Config, '{"limit": 0, "mode": "c", "colour": 1}')
    assert set(found) == {f"rewards[0].config.{name}" for name in ("tag", "limit", "mode", "colour")}
    assert found["rewards[0].config.tag"] == 'is missing; for example "answer"'
    assert "0" in found["rewards[0].config.limit"]
    assert "leave it out" in found["rewards[0].config.colour"]


def test_a_model_is_as_strict_as_its_schema() -> None:
    assert set(wrong(Config, '{"tag": 1, "limit": "5"}')) == {
        "rewards[0].config.tag",
        "rewards[0].config.limit",
    }


def test_a_schema_is_read() -> None:
    given = {"tag": "x", "mode": 1}
    with pytest.raises(InvalidArgumentError):
        config_reader({**SCHEMA, "required": ["other"]}).read(json.dumps(given), "config")
    schema = {**SCHEMA, "additionalProperties": True}
    assert config_reader(schema).read(json.dumps(given), "config") == given


def test_a_schema_names_every_wrong_field() -> None:
    found = wrong(SCHEMA, '{"tag": "", "weights": [1, "2", true], "deep": {}, "colour": 1}')
    assert set(found) == {
        f"rewards[0].config.{path}"
        for path in ("tag", "mode", "weights[1]", "weights[2]", "deep.a", "deep.b", "colour")
    }
    assert found["rewards[0].config.mode"] == "is missing"
    assert '"2" is refused' in found["rewards[0].config.weights[1]"]


@pytest.mark.parametrize("text", ["{", "[1]", "3", '"x"', "nul", "[" * 100_000])
@pytest.mark.parametrize("declared", [None, SCHEMA, Config])
def test_what_is_no_json_object_is_refused(declared: Any, text: str) -> None:
    assert list(wrong(declared, text)) == ["rewards[0].config"]


def test_a_reward_without_config_takes_an_empty_one_alone() -> None:
    reader = config_reader(None)
    assert reader.read("", "config") == {}
    assert reader.read("{}", "config") == {}
    assert set(wrong(None, '{"a": 1, "b": 2}')) == {"rewards[0].config.a", "rewards[0].config.b"}


def test_a_remote_reference_is_not_fetched() -> None:
    reader = config_reader({"$ref": "http://127.0.0.1:9/schema.json"})
    with pytest.raises(Exception, match=r"127\.0\.0\.1:9"):
        reader.read("{}", "config")


class Raising(BaseModel):
    tag: str = "x"

    @field_validator("tag")
    @classmethod
    def _raises(cls, tag: str) -> str:
        raise TypeError(f"{tag} has no len()")


@pytest.mark.parametrize("declared", [Raising, {"$ref": "#/$defs/missing"}, {"$ref": "#"}])
def test_rules_that_raise_are_told_and_are_no_internal_error(declared: Any) -> None:
    found = wrong(declared, '{"tag": "y"}')
    assert "the reward's own rules raised" in found["rewards[0].config"]
