"""Reading a JSON Schema (2020-12) of others: whether it is one, what its references name, what it costs.

In time that is linear in the schema, as this happens where sessions open: checking a schema against the
meta-schema takes the library seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from plaudit.types.validation import shown
from reward_service.rewards._patterns import compile_pattern

MAX_SCHEMA_LENGTH: Final = 20_000
MAX_STEPS_IN_PLACE: Final = 32
"""Subschemas one within the other that a value is checked against, references included."""
MAX_WORK_IN_PLACE: Final = 10_000
"""Keywords that one value is checked against, those behind references as often as they are referred to."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_UNSUPPORTED: Final = {
    "patternProperties": "name the properties, or use additionalProperties",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items and prefixItems",
    "$dynamicRef": "use $ref",
}
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")

_Kind = tuple[Callable[[Any], bool], str]


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_string, value)) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _is_names(value) and all(name in _TYPES for name in value)
    return isinstance(value, str) and value in _TYPES


def _is_names_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_names, value.values()))


def _is_schema(value: Any) -> bool:
    return isinstance(value, bool | dict)


_STRING: Final[_Kind] = (_is_string, "text")
_ANCHOR: Final[_Kind] = (
    lambda value: isinstance(value, str) and re.fullmatch("[A-Za-z_][A-Za-z0-9._-]*", value) is not None,
    "a letter or _, then letters, digits, dots, _ and -",
)
_BOOL: Final[_Kind] = (_is_bool, "true or false")
_NUMBER: Final[_Kind] = (_is_number, "a number")
_COUNT: Final[_Kind] = (_is_count, "a whole number of at least 0")
_SCHEMA: Final[_Kind] = (_is_schema, "a schema: an object, true or false")
_SCHEMAS: Final[_Kind] = (
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_schema, value)),
    "a list of one schema or more",
)
_SCHEMAS_BY_NAME: Final[_Kind] = (
    lambda value: isinstance(value, dict) and all(map(_is_schema, value.values())),
    "an object of schemas",
)

_KINDS: Final[dict[str, _Kind]] = {
    **dict.fromkeys(("$id", "$schema", "$ref", "$comment"), _STRING),
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _ANCHOR),
    **dict.fromkeys(("title", "description", "format", "pattern"), _STRING),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _STRING),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _BOOL),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minContains", "maxContains", "minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "type": (_is_type, f"one of {', '.join(_TYPES)}, or a list of them"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "examples": (lambda value: isinstance(value, list), "a list"),
    "required": (_is_names, "a list of names, each once"),
    "dependentRequired": (_is_names_by_name, "an object of lists of names, each once"),
    "$vocabulary": (
        lambda value: isinstance(value, dict) and all(map(_is_bool, value.values())),
        "an object of true and false",
    ),
    "dependencies": (
        lambda value: isinstance(value, dict) and all(_is_schema(v) or _is_names(v) for v in value.values()),
        "an object of schemas and lists of names",
    ),
    **dict.fromkeys(
        ("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "then"), _SCHEMA
    ),
    "propertyNames": _SCHEMA,
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS),
    **dict.fromkeys(("$defs", "definitions", "dependentSchemas", "properties"), _SCHEMAS_BY_NAME),
}


class SchemaText:
    """A schema that was read: `root`, what each `$ref` names, and each `pattern`, compiled.

    `weights` are those of the values of const and enum, by id: their characters, in 64.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError, with the way out, where `schema` is none, or is none that can be run safely."""
        try:
            length = len(json.dumps(schema, allow_nan=False))
        except ValueError:
            raise ValueError("the schema holds a number that is too large; the largest is 1.7e308") from None
        if length > MAX_SCHEMA_LENGTH:
            raise ValueError(f"the schema has {length} characters, of at most {MAX_SCHEMA_LENGTH}")
        dialect = schema.get("$schema", _DIALECT)
        if not isinstance(dialect, str) or dialect.rstrip("#") != _DIALECT:
            raise ValueError(
                f"$schema {shown(dialect)} is not read here; write it in 2020-12, and leave $schema out"
            )
        # Where a schema names a dialect, the library goes over to its own rules for that.
        self.root: dict[str, Any] = {name: value for name, value in schema.items() if name != "$schema"}
        self.patterns: dict[str, Any] = {}
        self.weights: dict[int, int] = {}
        self.targets: dict[str, Any] = {}
        self._places: dict[str, Any] = {}
        self._read("", self.root)
        self._resolve()
        self._costs: dict[int, tuple[int, int]] = {}
        for place in self._places.values():
            if isinstance(place, dict):
                self._cost(place, [])

    def _read(self, pointer: str, schema: Any) -> None:
        self._places[f"#{pointer}"] = schema
        if not isinstance(schema, dict):
            return
        for keyword, value in schema.items():
            where = f"#{pointer}/{keyword}"
            if keyword in _UNSUPPORTED:
                raise ValueError(f"{where}: {keyword} is not supported here; {_UNSUPPORTED[keyword]}")
            kind = _KINDS.get(keyword)
            if kind is not None and not kind[0](value):
                raise ValueError(
                    f"it is no JSON Schema: {where} is {shown(value)}, and {keyword} is {kind[1]}"
                )
            self._note(where, pointer, keyword, value, schema)
        for name, subschema in _subschemas(schema):
            self._read(f"{pointer}/{name}", subschema)

    def _note(self, where: str, pointer: str, keyword: str, value: Any, schema: Any) -> None:
        match keyword:
            case "$id" | "$schema" if pointer:
                raise ValueError(
                    f"{where}: a schema within a schema has no {keyword} here; leave it out, and name "
                    "what is under $defs by $ref"
                )
            case "$anchor" | "$dynamicAnchor":
                if self._places.setdefault(f"#{value}", schema) is not schema:
                    raise ValueError(f"{where}: the anchor {shown(value)} stands twice; give it another name")
            case "pattern":
                self.patterns[value] = compile_pattern(value)
            case "$ref":
                self.targets[value] = None
            case "const" | "enum":
                self.weights[id(value)] = len(json.dumps(value)) // 64

    def _resolve(self) -> None:
        for reference in self.targets:
            if not reference.startswith("#"):
                raise ValueError(
                    f"$ref {shown(reference)} leads outside of the schema; put what it names under $defs"
                )
            place = unquote(reference)
            if place not in self._places:
                raise ValueError(
                    f"$ref {shown(reference)} leads nowhere; name a schema that stands under $defs"
                )
            self.targets[reference] = self._places[place]

    def _cost(self, schema: dict[str, Any], path: list[int]) -> tuple[int, int]:
        """Steps and keywords in place below `schema`, to which `path` leads."""
        known = self._costs.get(id(schema))
        if known is None:
            if id(schema) in path:
                raise ValueError("the schema refers to itself without end; put properties or items between")
            steps, work = 0, 1 + len(schema)
            if len(path) < MAX_STEPS_IN_PLACE:
                for inner in self._in_place(schema):
                    inner_steps, inner_work = self._cost(inner, [*path, id(schema)])
                    steps, work = max(steps, inner_steps), work + inner_work
            known = self._costs[id(schema)] = (steps + 1, work)
        if len(path) + known[0] > MAX_STEPS_IN_PLACE:
            raise ValueError(
                f"more than {MAX_STEPS_IN_PLACE} schemas refer one to the next for one value; make it flatter"
            )
        if known[1] > MAX_WORK_IN_PLACE:
            raise ValueError(
                f"the schema asks for too much work: one value has more than {MAX_WORK_IN_PLACE} keywords to "
                "satisfy, counted as often as they are referred to; make it simpler"
            )
        return known

    def _in_place(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        reference = schema.get("$ref")
        found = [] if reference is None else [self.targets[reference]]
        for keyword in _IN_PLACE:
            value = schema.get(keyword)
            if isinstance(value, list):
                found += value
            elif keyword == "dependentSchemas" and value is not None:
                found += value.values()
            elif value is not None:
                found.append(value)
        return (inner for inner in found if isinstance(inner, dict))


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas that stand in `schema`, each with where: names of properties and data are no keywords."""
    for keyword, value in schema.items():
        kind = _KINDS.get(keyword)
        if kind is _SCHEMA:
            yield keyword, value
        elif kind is _SCHEMAS:
            yield from ((f"{keyword}/{index}", inner) for index, inner in enumerate(value))
        elif kind is _SCHEMAS_BY_NAME or keyword == "dependencies":
            for name, inner in value.items():
                if _is_schema(inner):
                    yield f"{keyword}/{name.replace('~', '~0').replace('/', '~1')}", inner
