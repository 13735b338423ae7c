"""Verdicts: the form that is asked for, and the strict reading of what came. Nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plaudit.types.validation import shown

RATIONALE: Final = "rationale"

_MAX_CHARS: Final = 64_000
_MAX_FALSE_STARTS: Final = 32
"""Braces that begin no object; prose has few."""

_MAX_RATIONALE_CHARS: Final = 4000


class _DoubledNameError(ValueError):
    """A name stands twice in a JSON object."""


class NoVerdictError(Exception):
    """An answer holds no verdict in the form that was asked for. The message says why."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A number that is asked for, from `low` to `high`, both included."""

    low: float
    high: float
    whole: bool = False

    @property
    def wanted(self) -> str:
        """What is wanted, in words."""
        return f"{'a whole' if self.whole else 'a'} number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Form:
    """What a verdict holds: a rationale, and under `key` one number for each of `marks`."""

    key: str
    marks: Mapping[str, Mark]

    def schema(self) -> dict[str, Any]:
        """The form as JSON Schema.

        Bounds stand in descriptions: not every endpoint takes `minimum`, and they are checked here anyway.
        """
        marks = {
            name: {"type": "integer" if mark.whole else "number", "description": mark.wanted}
            for name, mark in self.marks.items()
        }
        return {
            "type": "object",
            "properties": {
                RATIONALE: {"type": "string"},
                self.key: {
                    "type": "object",
                    "properties": marks,
                    "required": list(marks),
                    "additionalProperties": False,
                },
            },
            "required": [RATIONALE, self.key],
            "additionalProperties": False,
        }

    def example(self) -> str:
        """The form as a judge is shown it."""
        marks = ", ".join(f"{json.dumps(name)}: <{mark.wanted}>" for name, mark in self.marks.items())
        return f'{{"{RATIONALE}": "<why, in at most three sentences>", "{self.key}": {{{marks}}}}}'


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said: a number for each mark of the form, each within its bounds, and why."""

    numbers: Mapping[str, float]
    rationale: str

    def to_json(self, form: Form) -> str:
        """As `read_verdict` reads it."""
        return json.dumps({RATIONALE: self.rationale, form.key: dict(self.numbers)}, ensure_ascii=False)


def read_verdict(text: str, form: Form) -> Verdict:
    """The verdict in a judge's answer: its last JSON object that has the keys of the form.

    Prose around it is passed over, and an object within another one is a part of that one. Raises
    NoVerdictError where there is no such object, where the answer breaks off inside an object, and where the
    verdict is not in the form.
    """
    if not text.strip():
        raise NoVerdictError("the answer is empty")
    if len(text) > _MAX_CHARS:
        raise NoVerdictError(f"the answer has {len(text):,} characters; at most {_MAX_CHARS:,} are read")
    candidates = [found for found in _objects(text) if RATIONALE in found and form.key in found]
    if not candidates:
        raise NoVerdictError(f'the answer holds no JSON object with "{RATIONALE}" and "{form.key}"')
    return _checked(candidates[-1], form)


def _objects(text: str) -> Sequence[dict[str, Any]]:
    """The JSON objects in a text that stand in no other one, in their order."""
    found: list[dict[str, Any]] = []
    false_starts = 0
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError:
            if not _closes(text, start):
                raise NoVerdictError("the answer breaks off inside a JSON object") from None
            false_starts += 1
            if false_starts > _MAX_FALSE_STARTS:
                raise NoVerdictError("the answer holds too many braces that begin no JSON object") from None
            end = start + 1
        except RecursionError:
            raise NoVerdictError("the answer nests JSON too deep") from None
        except _DoubledNameError:
            raise NoVerdictError(
                "the answer holds a JSON object that is ambiguous: a name stands twice in it"
            ) from None
        except ValueError:  # what else the decoder makes of it: Python reads no number of that length
            raise NoVerdictError("the answer holds a number of thousands of digits") from None
        else:
            found.append(value)
        start = text.find("{", end)
    return found


def _closes(text: str, start: int) -> bool:
    """Whether the brace at `start` has its counterpart, those in strings aside."""
    depth, in_string, is_escaped = 0, False, False
    for position in range(start, len(text)):
        character = text[position]
        if in_string:
            if is_escaped or character == "\\":
                is_escaped = not is_escaped
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                return True
    return False


def _checked(verdict: Mapping[str, Any], form: Form) -> Verdict:
    rationale, given = verdict[RATIONALE], verdict[form.key]
    if not isinstance(rationale, str):
        raise NoVerdictError(f'"{RATIONALE}" is {shown(rationale)}, which is no text')
    if not isinstance(given, dict):
        raise NoVerdictError(f'"{form.key}" is {shown(given)}, which is no JSON object')
    if given.keys() != form.marks.keys():
        missing = [name for name in form.marks if name not in given]
        unknown = [name for name in given if name not in form.marks]
        faults = [
            *([f"lacks {', '.join(map(shown, missing))}"] if missing else []),
            *([f"has {', '.join(map(shown, unknown[:3]))}, which was not asked for"] if unknown else []),
        ]
        raise NoVerdictError(f'"{form.key}" {" and ".join(faults)}')
    numbers: dict[str, float] = {}
    for name, mark in form.marks.items():
        number = given[name]
        # A truth value is an int to Python, and "0.8" is text: neither is a number that was given.
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if (
            not is_number
            or not mark.low <= number <= mark.high  # NaN is in no range
            or (mark.whole and number != int(number))
        ):
            raise NoVerdictError(f"{shown(name)} is {shown(number)} where {mark.wanted} was asked for")
        numbers[name] = float(number)
    return Verdict(numbers, _made_short(rationale))


def _made_short(rationale: str) -> str:
    # Half of a surrogate pair may stand in JSON, and is no character.
    text = rationale.encode("utf-8", "replace").decode("utf-8").strip()
    return text if len(text) <= _MAX_RATIONALE_CHARS else f"{text[:_MAX_RATIONALE_CHARS]}…"


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _DoubledNameError
    return value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_without_doubles)
