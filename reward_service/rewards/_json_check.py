"""Whether hostile text is JSON that satisfies a schema, in time that is linear in the text."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry

from plaudit.types.validation import MAX_DEPTH, json_fault, nests_deeper
from reward_service.rewards._json_schema import SchemaText

MAX_WORK: Final = 20_000
"""Units of work for the check of a text, some microseconds each, plus these for each of its characters:"""
MAX_WORK_PER_CHARACTER: Final = 2

_Keyword = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]

_OF_EACH_SCHEMA: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_OF_EACH_VALUE: Final = ("items", "additionalProperties", "contains", "propertyNames")
_TOO_DEEP: Final = f"the JSON is nested deeper than {MAX_DEPTH} levels, or than the schema can be followed"


class JsonCheck:
    """A JSON Schema (2020-12) that text is checked against."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError, with the way out, where `schema` is none, or is none that can be run safely."""
        text = SchemaText(schema)

        def matches_pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
            if isinstance(value, str) and not text.patterns[pattern].search(value):
                yield ValidationError(f"{_short(value)} does not match {pattern!r}")

        def follows(validator: Any, reference: str, value: Any, _: Any) -> Iterator[ValidationError]:
            # The library's own goes through the whole schema for an anchor, at every use.
            errors: Iterator[ValidationError] = validator.descend(value, text.targets[reference])
            return errors

        keywords: dict[str, Any] = {
            **Draft202012Validator.VALIDATORS,
            "$ref": follows,
            "multipleOf": _is_multiple,
            "pattern": matches_pattern,
            "uniqueItems": _has_unique_items,
        }
        self._budget = _Budget(text.weights)
        charged = {name: self._budget.charging(name, keyword) for name, keyword in keywords.items()}
        validator: Any = extend(Draft202012Validator, charged)  # type: ignore[no-untyped-call]  # no type information is published
        # A registry of its own: the default one would fetch remote references.
        self._validator = validator(text.root, registry=Registry())

    def fault_of(self, text: str) -> str | None:
        """What is wrong with `text`, or None. Raises ValueError where the schema asks for too much work."""
        try:
            value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        except RecursionError:
            return _TOO_DEEP
        except ValueError as error:
            return f"not JSON: {error}"
        if nests_deeper(value, MAX_DEPTH):
            return _TOO_DEEP
        # Half of a surrogate pair comes from its escape alone.
        if "\\u" in text and (fault := json_fault(value)) is not None:
            return f"not JSON: {fault}"
        self._budget.renew(len(text))
        try:
            fault = next(self._validator.iter_errors(value), None)
        except RecursionError:
            # The schema's own steps are few: the rest is the text's.
            return _TOO_DEEP
        except _TooMuchWorkError:
            raise ValueError(
                f"not judged: on this text of {len(text):,} characters the schema asks for too much work,"
                " more than is linear in it; make it simpler: fewer alternatives (anyOf, oneOf, allOf) and "
                "references below lists, or a maxItems"
            ) from None
        except Exception as error:
            # Whatever a schema and a text of others make the library raise is about these two.
            raise ValueError(f"the schema cannot be applied: {type(error).__name__}: {error}") from None
        return None if fault is None else f"{fault.json_path}: {fault.message}"


class _TooMuchWorkError(Exception):
    """The schema asks for more than the check of one text may take."""


class _Budget(threading.local):
    """Work of one check, and so of one thread: linear in the text, whatever the schema multiplies."""

    def __init__(self, weights: Mapping[int, int]) -> None:
        self._weights = weights
        self._left = 0

    def renew(self, length: int) -> None:
        """Begins the check of a text of `length` characters."""
        self._left = MAX_WORK + MAX_WORK_PER_CHARACTER * length

    def charging(self, name: str, keyword: _Keyword) -> _Keyword:
        """`keyword`, paid for by what of schema and text it looks at, and the errors that it finds."""
        of_each_schema, of_each_value = name in _OF_EACH_SCHEMA, name in _OF_EACH_VALUE

        def charged(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
            units = 1
            if isinstance(rule, list | dict):
                units += self._weights.get(id(rule), 0) + len(rule) // (1 if of_each_schema else 16)
            if of_each_value and isinstance(value, list | dict):
                units += len(value)
            self._pay(units)
            for error in keyword(validator, rule, value, schema) or ():
                # It holds a rendering of the value that it is about.
                self._pay(1 + len(error.message) // 100)
                yield error

        return charged

    def _pay(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise _TooMuchWorkError


def _is_multiple(_: Any, divisor: float, value: Any, __: Any) -> Iterator[ValidationError]:
    # As the decimals that were written: as floats, 0.3 is no multiple of 0.1.
    if isinstance(value, int | float) and not isinstance(value, bool):
        quotient = Fraction(repr(value) if isinstance(value, float) else value) / Fraction(repr(divisor))
        if quotient.denominator != 1:
            yield ValidationError(f"{value!r} is not a multiple of {divisor!r}")


def _has_unique_items(_: Any, unique: bool, value: Any, __: Any) -> Iterator[ValidationError]:
    # jsonschema's own compares every two items where they cannot be sorted.
    if unique and isinstance(value, list) and len({_frozen(item) for item in value}) < len(value):
        yield ValidationError("the items are not unique")


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # In JSON true is not 1, and 1 is 1.0. Numbers as texts: those of one hash could be chosen.
    return (type(value), repr(value)) if isinstance(value, int | float) else value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large; the largest number is 1.7e308")
    return number


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _short(value: str) -> str:
    return repr(value if len(value) <= 80 else f"{value[:80]}…")
