"""Checks a reward's configuration against the JSON Schema that its server announces.

The schema comes from somebody else's server, so it is taken as hostile: bounded in size and in the work that
it may cause, its patterns run in linear time, and it is never a reason to open another address. What these
bounds shut out is not checked here: the server checks its configuration itself when a session opens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import re2
import structlog
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

from plaudit.errors import FieldViolation
from plaudit.types.validation import shown

log = structlog.get_logger(__name__)

MAX_SCHEMA_BYTES: Final = 32 * 1024
MAX_CONFIG_BYTES: Final = 512 * 1024
"""Largest configuration, as JSON: it holds the source of a python_function, with room for escapes."""
MAX_WORK: Final = 10_000
"""Units of work for one configuration, about 10 µs each; see `_Budget`. A real one takes some hundred."""
MAX_VIOLATIONS: Final = 20
_MAX_UNIQUE_ITEMS: Final = 1_000
_MAX_MESSAGE_LENGTH: Final = 200
_MAX_NAMES: Final = 20

_Keyword = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]


def parse_config_schema(text: str, reward: str) -> Mapping[str, Any] | None:
    """The schema in a server's description of `reward`; None where the reward takes no configuration.

    A schema that can not be used is as good as `{}`, which admits everything. A large one takes about a
    second, the first time: call this outside of the event loop.
    """
    if not text.strip():
        return None
    if len(text.encode("utf-8")) > MAX_SCHEMA_BYTES:
        _not_used(reward, f"it is larger than {MAX_SCHEMA_BYTES:,} bytes")
        return {}
    schema, why = _parsed(text)
    if schema is None:
        _not_used(reward, why)
        return {}
    return schema


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Mapping[str, Any] | None, str]:
    try:
        schema = json.loads(text)
        if not isinstance(schema, dict):
            return None, "it is no JSON object"
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except Exception as error:
        # Whatever somebody else's text makes these libraries raise, it is about the text.
        return None, f"{type(error).__name__}: {str(error)[:_MAX_MESSAGE_LENGTH]}"
    return schema, ""


def _not_used(reward: str, why: str) -> None:
    log.warning(
        "configurations are not checked: the schema of a reward can not be used", reward=reward, why=why
    )


def config_violations(
    schema: Mapping[str, Any] | None, config: Mapping[str, Any], field: str
) -> list[FieldViolation]:
    """What is wrong with `config`; paths start with `field`, for example `rewards[0].config`."""
    size = len(json.dumps(config))
    if size > MAX_CONFIG_BYTES:
        return [
            FieldViolation(field, f"takes {size:,} bytes as JSON; at most {MAX_CONFIG_BYTES:,} are accepted")
        ]
    if schema is None:
        if not config:
            return []
        return [FieldViolation(field, f"{shown(config)}: the reward takes no configuration; leave it out")]
    found: dict[str, FieldViolation] = {}
    try:
        for error in _validator(dict(schema), size).iter_errors(config):
            for violation in _violations(error, field):
                # A value of the wrong type breaks other rules too, which says nothing more.
                found.setdefault(violation.field, violation)
            if len(found) >= MAX_VIOLATIONS:
                break
    except Exception as error:
        # A reference that leads nowhere or round in circles, too much work, or what else a schema can cause.
        log.warning("a configuration is checked in part", field=field, why=type(error).__name__)
    return list(found.values())


class _TooMuchWork(Exception):
    """The schema asks for more than a check may take."""


def _validator(schema: dict[str, Any], config_bytes: int) -> Any:
    draft: Any = validator_for(schema, default=Draft202012Validator)
    keywords: dict[str, _Keyword] = {**draft.VALIDATORS, "pattern": _pattern}
    for name in ("patternProperties", "unevaluatedItems", "unevaluatedProperties"):
        # Their work is not done keyword by keyword, or by patterns that can take for ever.
        keywords.pop(name, None)
    keywords["additionalProperties"] = _without_patterns(keywords["additionalProperties"])
    keywords["uniqueItems"] = _for_short_lists(keywords["uniqueItems"])
    budget = _Budget(MAX_WORK, config_bytes)
    counted = {name: budget.charging(keyword) for name, keyword in keywords.items()}
    # An empty registry: a reference to elsewhere is Unresolvable, and nothing is fetched.
    checker: Any = extend(draft, {**dict.fromkeys(draft.VALIDATORS, _nothing), **counted})  # type: ignore[no-untyped-call]
    return checker(schema, registry=Registry())


class _Budget:
    def __init__(self, units: int, config_bytes: int) -> None:
        self._left = units
        # Every error holds a rendering of the value that it is about.
        self._unit_of_values = 1 + config_bytes // 1_000

    def charging(self, keyword: _Keyword) -> _Keyword:
        """`keyword`, paid for by what it looks at."""

        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            self._left -= self._unit_of_values + (len(value) if isinstance(value, list | dict) else 0)
            if self._left < 0:
                raise _TooMuchWork
            yield from keyword(validator, value, instance, schema) or ()

        return counted


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    """A keyword that is left to the server."""


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    try:
        matches = re2.search(pattern, instance, _QUIET)
    except re2.error:
        return
    if matches is None:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _without_patterns(additional_properties: _Keyword) -> _Keyword:
    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if "patternProperties" not in schema:
            yield from additional_properties(validator, value, instance, schema) or ()

    return keyword


def _for_short_lists(unique_items: _Keyword) -> _Keyword:
    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, list) and len(instance) <= _MAX_UNIQUE_ITEMS:
            yield from unique_items(validator, value, instance, schema) or ()

    return keyword


def _quiet_options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


_QUIET: Final = _quiet_options()


def _violations(error: ValidationError, field: str) -> Iterator[FieldViolation]:
    path = f"{field}{error.json_path.removeprefix('$')}"
    schema = error.schema if isinstance(error.schema, dict) else {}
    properties = schema.get("properties", {})
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = ", ".join(list(properties)[:_MAX_NAMES]) or "no field"
        for name in [name for name in error.instance if name not in properties][:_MAX_NAMES]:
            yield FieldViolation(
                f"{path}.{name[:_MAX_MESSAGE_LENGTH]}",
                f"{shown(error.instance[name])}: there is no such field; it takes {known}",
            )
    elif error.validator == "required" and isinstance(error.instance, dict):
        required: Any = error.validator_value
        for name in [name for name in required if name not in error.instance][:_MAX_NAMES]:
            yield FieldViolation(f"{path}.{name[:_MAX_MESSAGE_LENGTH]}", "is missing")
    else:
        message = _message(error).encode("utf-8", "backslashreplace").decode("utf-8")
        if len(message) > _MAX_MESSAGE_LENGTH:
            message = f"{message[:_MAX_MESSAGE_LENGTH]}…"
        default = f"; the default is {shown(schema['default'])}" if "default" in schema else ""
        yield FieldViolation(path, message + default)


def _message(error: ValidationError) -> str:
    """What is wrong; the value, with which the message may begin, is shortened and written as JSON."""
    value = repr(error.instance)
    if error.message.startswith(value):
        return f"{shown(error.instance)}{error.message[len(value) :]}"
    return error.message
