"""Configuration of a reward: a pydantic model, or a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import structlog
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from pydantic import BaseModel
from pydantic import ValidationError as ModelError
from referencing import Registry

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.validation import parse_json_object, shown, violations_of
from reward_service._outcomes import readable

log = structlog.get_logger(__name__)


class ConfigReader(Protocol):
    """Reads what a session configures a reward with."""

    schema_json: str

    def read(self, config_json: str, field: str) -> Any:
        """The configuration in `config_json`, or InvalidArgumentError that names every wrong field."""


def config_reader(declared: object) -> ConfigReader:
    """The reader of what a reward declares: a pydantic model, a JSON Schema, or None where it takes none."""
    if declared is None:
        return _NoConfig()
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return _ModelConfig(declared)
    if isinstance(declared, Mapping):
        return _SchemaConfig(declared)
    raise InvalidArgumentError.of(
        "config", f"{shown(declared)} is neither a pydantic model class nor a JSON Schema as a dict"
    )


class _NoConfig:
    schema_json = ""

    def read(self, config_json: str, field: str) -> Any:
        given = parse_json_object(config_json, field)
        if given:
            raise InvalidArgumentError(
                [
                    FieldViolation(f"{field}.{name}", "this reward takes no config; leave it out")
                    for name in given
                ]
            )
        return {}


class _ModelConfig:
    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self.schema_json = json.dumps(model.model_json_schema())

    def read(self, config_json: str, field: str) -> Any:
        given = parse_json_object(config_json, field)
        try:
            # Strict: the JSON Schema that was published does not take "5" for 5 either.
            return self._model.model_validate_json(json.dumps(given), strict=True)
        except ModelError as error:
            raise InvalidArgumentError(list(violations_of(error, self._model, prefix=field))) from None
        except Exception as error:
            raise _unreadable(field, error) from error


class _SchemaConfig:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise InvalidArgumentError.of("config", f"is no JSON Schema: {error.message}") from None
        self.schema_json = json.dumps(schema)
        # A registry of its own: the default one would fetch remote references.
        self._validator = Draft202012Validator(json.loads(self.schema_json), registry=Registry())

    def read(self, config_json: str, field: str) -> Any:
        given = parse_json_object(config_json, field)
        try:
            errors = list(self._validator.iter_errors(given))
        except Exception as error:
            raise _unreadable(field, error) from error
        violations = [violation for error in errors for violation in _violations(error, field)]
        if violations:
            raise InvalidArgumentError(violations)
        return given


def _unreadable(field: str, error: Exception) -> InvalidArgumentError:
    """What is told where the reward's own rules for its config raise what is no verdict on a field."""
    log.error("a config could not be validated", field=field, why=f"{type(error).__name__}: {error}")
    return InvalidArgumentError.of(
        field,
        readable(
            f"cannot be validated: the reward's own rules raised {type(error).__name__}: {error}; leave out "
            "what is unusual, or mend the reward"
        ),
    )


def _violations(error: ValidationError, field: str) -> Iterator[FieldViolation]:
    path = field + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    schema: Any = error.schema
    rule: Any = error.validator_value
    instance: Any = error.instance
    if error.validator == "required":
        # One error for each missing name comes with the same list; the name stands in the message alone.
        name = next(name for name in rule if error.message.startswith(repr(name)))
        yield FieldViolation(f"{path}.{name}", "is missing")
    elif error.validator == "additionalProperties" and rule is False and "patternProperties" not in schema:
        for name in instance:
            if name not in schema.get("properties", {}):
                yield FieldViolation(f"{path}.{name}", "there is no such field; leave it out")
    else:
        yield FieldViolation(path, f"{shown(instance)} is refused: {error.message}")
