"""One validation for all ways in: everything wrong at once, as field, value and way out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.jobs import RewardBinding, RunSpec, TrainingJobSpec
from plaudit.types.methods import NO_REWARDS, hyperparameters_of, other_method_with
from plaudit.types.rescores import RescoreSpec
from plaudit.types.rules import RULES, RULES_OF_METHOD
from plaudit.types.texts import shown as shown

Model = TypeVar("Model", bound=BaseModel)

MAX_DEPTH: Final = 64
"""Deepest nesting of JSON that is taken from outside; far below what makes a reader of ours overflow."""
TOO_DEEP: Final = f"is nested more than {MAX_DEPTH} levels deep; flatten it"


def parse_job_spec(data: object) -> TrainingJobSpec:
    """Makes a job spec of JSON-like data, or raises InvalidArgumentError with every wrong field."""
    spec, violations = check_job_spec(data)
    if spec is None:
        raise InvalidArgumentError(violations)
    return spec


def check_job_spec(data: object) -> tuple[TrainingJobSpec | None, list[FieldViolation]]:
    """As `parse_job_spec`, for callers that have more to check: the spec, or None and what is wrong."""
    data = _with_default_reward_names(data)
    violations: list[FieldViolation] = []
    spec: TrainingJobSpec | None = None
    try:
        spec = TrainingJobSpec.model_validate_json(_to_json(data))
    except ValidationError as error:
        violations.extend(violations_of(error, TrainingJobSpec))
    violations = _with_methods_told(data, violations)
    violations.extend(_broken_rules(data, {v.field for v in violations}))
    if isinstance(data, Mapping):
        violations.extend(_wrong_reward_sets(data.get("rewards"), {v.field for v in violations}))
    return (None if violations else spec), violations


def check_rescore_spec(data: object) -> tuple[RescoreSpec | None, list[FieldViolation]]:
    """The rescore that JSON-like data asks for, or None and everything that is wrong."""
    data = _with_default_reward_names(data)
    violations: list[FieldViolation] = []
    spec: RescoreSpec | None = None
    try:
        spec = RescoreSpec.model_validate_json(_to_json(data))
    except ValidationError as error:
        violations.extend(violations_of(error, RescoreSpec))
    if isinstance(data, Mapping):
        violations.extend(_wrong_reward_sets(data.get("rewards"), {v.field for v in violations}))
    if spec is not None and 0 < spec.to_step < spec.from_step:
        violations.append(
            FieldViolation(
                "from_step",
                f"{spec.from_step} is above to_step ({spec.to_step}); leave to_step out for all from there",
            )
        )
    return (None if violations else spec), violations


def check_run_spec(data: object, prefix: str = "") -> tuple[RunSpec | None, list[FieldViolation]]:
    """The run spec that JSON-like data holds, or None and every wrong field, each below `prefix`."""
    violations: list[FieldViolation] = []
    spec: RunSpec | None = None
    try:
        spec = RunSpec.model_validate_json(_to_json(data))
    except ValidationError as error:
        violations.extend(violations_of(error, RunSpec))
    violations.extend(_broken_rules(data, {v.field for v in violations}))
    below = [FieldViolation(f"{prefix}.{v.field}" if prefix else v.field, v.message) for v in violations]
    return (None if violations else spec), below


def parse_json_object(text: str, field: str) -> dict[str, Any]:
    """Reads the JSON object in the text of `field`; empty text is {}."""
    if not text.strip():
        return {}
    try:
        value = load_json(text)
    except ValueError as error:
        raise InvalidArgumentError.of(
            field, f"is not JSON ({error}); send a JSON object, for example {{}}"
        ) from None
    except RecursionError:
        raise InvalidArgumentError.of(field, TOO_DEEP) from None
    fault = json_fault(value)
    if fault is not None:
        raise InvalidArgumentError.of(field, fault)
    if not isinstance(value, dict):
        raise InvalidArgumentError.of(
            field, f"{shown(value)} is not a JSON object; send one, for example {{}}"
        )
    return value


def load_json(text: str) -> Any:
    """As json.loads; a name that stands twice in an object is a ValueError, as one of them would be lost."""
    return json.loads(text, object_pairs_hook=_object_without_doubles, parse_int=_whole_number)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a whole number of {len(text):,} digits is more than can be read") from None


def _object_without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shown(double)} stands twice in an object")
    return value


def json_fault(value: object) -> str | None:
    """What makes JSON from outside unfit to be passed on, with the way out; None where it is fit."""
    if nests_deeper(value, MAX_DEPTH):
        return TOO_DEEP
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        return (
            f"holds half of a surrogate pair (\\u{half:04x}), which is no character; write the character in "
            "full, or take it out"
        )
    return None


def nests_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects in `value` nest more than `levels` deep, as text from outside may."""
    level = [value]
    for _ in range(levels + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def parse_model(model: type[Model], data: object, prefix: str = "") -> Model:
    """Makes a `model` of JSON-like data, or raises InvalidArgumentError with every wrong field."""
    try:
        return model.model_validate_json(_to_json(data))
    except ValidationError as error:
        raise InvalidArgumentError(list(violations_of(error, model, prefix))) from None


def violations_of(
    error: ValidationError, model: type[BaseModel], prefix: str = ""
) -> Iterator[FieldViolation]:
    """Pydantic's errors in our words: `field`, then the value, what is expected, and a value that works."""
    for detail in error.errors(include_url=False):
        if _counts_wrong_items_as_absent(detail):
            continue
        location = detail["loc"]
        yield FieldViolation(_path(location, prefix), _message(detail, _example(model, location)))


def _counts_wrong_items_as_absent(detail: ErrorDetails) -> bool:
    """Whether a list is called too short only because items that it has are wrong, which is told apart."""
    return (
        detail["type"] == "too_short"
        and isinstance(detail["input"], list)
        and len(detail["input"]) >= detail["ctx"]["min_length"]
    )


def _to_json(data: object) -> str:
    # Strict models read JSON, in which a list is a tuple and 1 is a float, but "1" is not a number. NaN
    # passes here so that the field's own rule refuses it by name.
    return json.dumps(data, allow_nan=True, default=repr)


def _with_default_reward_names(data: object) -> object:
    if not isinstance(data, Mapping) or not isinstance(data.get("rewards"), list | tuple):
        return data
    rewards = [
        {
            "name": reward["reward"],
            **{k: v for k, v in reward.items() if not (k == "name" and v in ("", None))},
        }
        if isinstance(reward, Mapping) and isinstance(reward.get("reward"), str)
        else reward
        for reward in data["rewards"]
    ]
    return {**data, "rewards": rewards}


def _with_methods_told(data: object, violations: list[FieldViolation]) -> list[FieldViolation]:
    """The violations; a hyperparameter of another method than the job's is told to be one."""
    method = data.get("method", "grpo") if isinstance(data, Mapping) else None
    if not isinstance(method, str) or method not in RULES_OF_METHOD:
        return violations
    known = hyperparameters_of(method).model_fields
    told = []
    for violation in violations:
        name = violation.field.removeprefix("hyperparameters.")
        other = other_method_with(name, method)
        if violation.field != name and name not in known and other is not None:
            violation = FieldViolation(
                violation.field,
                f"is a hyperparameter of {other}, and {method} has none of this name; leave it out",
            )
        told.append(violation)
    return told


def _broken_rules(data: object, wrong_fields: set[str]) -> Iterator[FieldViolation]:
    hyperparameters = data.get("hyperparameters", {}) if isinstance(data, Mapping) else None
    if (
        not isinstance(data, Mapping)
        or not isinstance(hyperparameters, Mapping)
        or "(request)" in wrong_fields
    ):
        return
    method = data.get("method", "grpo")
    model = hyperparameters_of(method)
    wrong = {field.split(".")[1] for field in wrong_fields if field.startswith("hyperparameters.")}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in hyperparameters.items()
        if name in model.model_fields and name not in wrong
    }
    candidate = model.model_construct(**given)
    for rule in RULES_OF_METHOD.get(str(method), RULES):
        if not rule.reads & wrong:
            for violation in rule.check(candidate):
                yield FieldViolation(f"hyperparameters.{violation.field}", violation.message)


def _wrong_reward_sets(rewards: object, wrong_fields: set[str]) -> Iterator[FieldViolation]:
    if not isinstance(rewards, list | tuple):
        return
    first_use: dict[str, int] = {}
    all_held_out = bool(rewards)
    for index, reward in enumerate(rewards):
        if not isinstance(reward, Mapping):
            all_held_out = False
            continue
        name = reward.get("name") or reward.get("reward")
        if isinstance(name, str) and f"rewards[{index}].name" not in wrong_fields:
            if name in first_use:
                yield FieldViolation(
                    f"rewards[{index}].name",
                    f"{shown(name)} is the name of rewards[{first_use[name]}] too; each reward needs its own",
                )
            first_use.setdefault(name, index)
        weight = reward.get("weight", 1.0)
        all_held_out &= weight == 0 and not isinstance(weight, bool)
    if all_held_out:
        yield FieldViolation(
            "rewards",
            "every weight is 0, so that all are scored and shown and nothing is summed up; give at least one "
            "of them a weight, for example 1",
        )


def _path(location: tuple[int | str, ...], prefix: str) -> str:
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif path:
            path += f".{part}"
        else:
            path = part
    return path or "(request)"


def _example(model: type[BaseModel], location: tuple[int | str, ...]) -> object:
    """The documented example of the field at `location`, or `...` where there is none."""
    models: Sequence[type[BaseModel]] = [model]
    example: object = ...
    for part in location:
        if isinstance(part, int):
            continue
        field = next((m.model_fields[part] for m in models if part in m.model_fields), None)
        if field is None:
            return ...
        example = field.examples[0] if field.examples else ...
        models = list(_models_in(field.annotation))
    return example


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _message(detail: ErrorDetails, example: object) -> str:
    hint = "" if example is ... or example is None else f"; for example {shown(example)}"
    kind = detail["type"]
    if kind == "missing":
        return f"is missing{hint}"
    if kind == "extra_forbidden":
        return f"{shown(detail['input'])}: there is no such field; leave it out"
    if kind == NO_REWARDS:
        return f"{shown(detail['input'])}: {detail['msg']}"
    # Pydantic names Python's types; a list of a request is a list, whatever holds it here.
    expected = detail["msg"].removeprefix("Value error, ").replace("Tuple should", "List should")
    expected = expected.replace(" after validation", "")
    return f"{shown(detail['input'])} is refused: {expected[0].lower()}{expected[1:]}{hint}"


__all__ = [
    "MAX_DEPTH",
    "TOO_DEEP",
    "RewardBinding",
    "check_job_spec",
    "check_rescore_spec",
    "check_run_spec",
    "json_fault",
    "load_json",
    "nests_deeper",
    "parse_job_spec",
    "parse_json_object",
    "parse_model",
    "shown",
    "violations_of",
]
