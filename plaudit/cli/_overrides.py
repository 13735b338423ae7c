"""`--set field.path=value`: changes of a job file, or of a job that is cloned."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plaudit.client._convert import BESIDE_SPEC
from plaudit.errors import FieldViolation
from plaudit.types.jobs import RewardBinding, TrainingJobSpec
from plaudit.types.methods import HYPERPARAMETERS
from plaudit.types.validation import load_json, shown

_PATH: Final = re.compile(r"[^.\[\]=]+(\[\d+\])*(\.[^.\[\]=]+(\[\d+\])*)*")
_STEP: Final = re.compile(r"\[(\d+)\]|[^.\[\]]+")
_JOB_FIELDS: Final = (*TrainingJobSpec.model_fields, *BESIDE_SPEC)
_HYPERPARAMETERS: Final = tuple(
    dict.fromkeys(name for model in HYPERPARAMETERS.values() for name in model.model_fields)
)


def with_overrides(
    data: dict[str, Any], pairs: Sequence[str], *, of: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[FieldViolation]]:
    """A copy of `data` with the fields of `field.path=value` set; the value is JSON where it can be read so,
    else text. With it every pair that is not of that form, or names no field, and is left out.

    `of` is what `data` changes: a path into a field that `data` lacks, and that is replaced as a whole,
    starts from the value there. Hyperparameters are replaced one by one.
    """
    changed = copy.deepcopy(data)
    violations = []
    for pair in pairs:
        tried = copy.deepcopy(changed)
        try:
            _set(tried, pair, of or {})
        except ValueError as error:
            violations.append(FieldViolation("--set", f"{shown(pair)} is refused: {error}"))
        else:
            changed = tried
    return changed, violations


def _set(data: dict[str, Any], pair: str, of: Mapping[str, Any]) -> None:
    path, equals, text = pair.partition("=")
    if not equals or not _PATH.fullmatch(path):
        raise ValueError("write FIELD=VALUE, as in hyperparameters.max_steps=50")
    steps = [int(match[1]) if match[1] else match[0] for match in _STEP.finditer(path)]
    _take_over(data, steps, of)
    place: Any = data
    for number, step in enumerate(steps):
        before = _path(steps[:number])
        if isinstance(step, int):
            if not isinstance(place, list) or not place:
                raise ValueError(f"{before} is no list here; set it as a whole, as in '{before}=[...]'")
            if step >= len(place):
                raise ValueError(f"the last entry of {before} is {before}[{len(place) - 1}]")
        elif not isinstance(place, dict):
            raise ValueError(f"{before} holds no fields")
        else:
            _check_name(steps[:number], step)
        if number == len(steps) - 1:
            place[step] = _value(text)
        elif isinstance(step, str):
            place = place.setdefault(step, [] if isinstance(steps[number + 1], int) else {})
        else:
            place = place[step]


def _take_over(data: dict[str, Any], steps: Sequence[str | int], of: Mapping[str, Any]) -> None:
    """Copies from `of` what the path goes into, where `data` says nothing of it."""
    depth = 2 if steps[0] == "hyperparameters" else 1
    if len(steps) <= depth:
        return
    for step in steps[: depth - 1]:
        of = of.get(str(step), {})
        data = data.setdefault(str(step), {})
    name = str(steps[depth - 1])
    if isinstance(data, dict) and name in of:
        data.setdefault(name, copy.deepcopy(of[name]))


def _check_name(before: Sequence[str | int], name: str) -> None:
    match before:
        case []:
            known: Sequence[str] = _JOB_FIELDS
        case ["hyperparameters"]:
            known = _HYPERPARAMETERS
        case ["rewards", int()]:
            known = tuple(RewardBinding.model_fields)
        case _:
            return
    if name in known:
        return
    where = f"{_path(before)}." if before else ""
    near = [f"{where}{each}" for each in difflib.get_close_matches(name, known, n=3, cutoff=0.6)]
    if not before and name in _HYPERPARAMETERS:
        near = [f"hyperparameters.{name}"]
    way_out = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise ValueError(f"there is no field {where}{name}; {way_out}")


def _path(steps: Sequence[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _value(text: str) -> Any:
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return text
