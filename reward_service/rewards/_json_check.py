"""Whether hostile text is JSON that satisfies a schema, in time that is linear in the text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry

from plaudit.types.validation import MAX_DEPTH, nests_deeper
from reward_service.rewards._patterns import compile_pattern

MAX_SCHEMA_LENGTH: Final = 20_000

_BY_NAME: Final = ("properties", "$defs", "definitions", "dependentSchemas")
_UNSUPPORTED: Final = {
    "patternProperties": "name the properties, or use additionalProperties",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items and prefixItems",
    "$dynamicRef": "use $ref",
}


class JsonCheck:
    """A JSON Schema (2020-12) that text is checked against."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError, with the way out, where `schema` is none, or is none that can be run safely."""
        if len(json.dumps(schema)) > MAX_SCHEMA_LENGTH:
            raise ValueError(f"the schema has more than {MAX_SCHEMA_LENGTH} characters")
        try:
            # Without formats: a pattern here is RE2's, and is compiled below.
            Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
        except SchemaError as error:
            raise ValueError(f"it is no JSON Schema: {error.message}") from None
        patterns: dict[str, Any] = {}
        for keyword, value in _keywords(schema):
            if keyword in _UNSUPPORTED:
                raise ValueError(f"{keyword} is not supported here; {_UNSUPPORTED[keyword]}")
            if keyword == "$ref" and not str(value).startswith("#"):
                raise ValueError(f"$ref {value!r} leads outside of the schema; put what it names under $defs")
            if keyword == "pattern":
                patterns[value] = compile_pattern(value)

        def matches_pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
            if isinstance(value, str) and not patterns[pattern].search(value):
                yield ValidationError(f"{_short(value)} does not match {pattern!r}")

        validator: Any = extend(  # type: ignore[no-untyped-call]  # no type information is published
            Draft202012Validator, {"pattern": matches_pattern, "uniqueItems": _has_unique_items}
        )
        # A registry of its own: the default one would fetch remote references.
        self._validator = validator(schema, registry=Registry())

    def fault_of(self, text: str) -> str | None:
        """What is wrong with `text`, or None. Raises ValueError where the schema cannot be followed."""
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
        except RecursionError:
            return f"the JSON is nested deeper than {MAX_DEPTH} levels"
        except ValueError as error:
            return f"not JSON: {error}"
        if nests_deeper(value, MAX_DEPTH):
            return f"the JSON is nested deeper than {MAX_DEPTH} levels"
        try:
            fault = best_match(self._validator.iter_errors(value))
        except RecursionError:
            raise ValueError("the schema refers to itself without end") from None
        return None if fault is None else f"{fault.json_path}: {fault.message}"


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every (keyword, value) of a schema and its subschemas; names of properties are no keywords."""
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        yield keyword, value
        if keyword in ("const", "enum", "default", "examples"):
            continue
        if keyword in ("properties", "$defs", "definitions", "dependentSchemas") and isinstance(
            value, Mapping
        ):
            subschemas = list(value.values())
        else:
            subschemas = value if isinstance(value, list) else [value]
        for subschema in subschemas:
            yield from _keywords(subschema)


def _has_unique_items(_: Any, unique: bool, value: Any, __: Any) -> Iterator[ValidationError]:
    # jsonschema's own compares every two items where they cannot be sorted.
    if unique and isinstance(value, list) and len({_frozen(item) for item in value}) < len(value):
        yield ValidationError("the items are not unique")


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    # In JSON true is not 1, and 1 is 1.0.
    return (type(value), value) if isinstance(value, bool) else value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _short(value: str) -> str:
    return repr(value if len(value) <= 80 else f"{value[:80]}…")
