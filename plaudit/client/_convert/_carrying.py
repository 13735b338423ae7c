"""Data of a caller as messages: unchecked where they can carry it, else refused in the gateway's words."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import training_job_pb2
from plaudit.gateway.v1 import training_job_service_pb2 as service_pb2
from plaudit.types.validation import check_job_spec, json_fault, shown

AnyMessage = TypeVar("AnyMessage", bound=Message)
Item = TypeVar("Item")


BESIDE_SPEC: Final = (
    "reward_source",
    "reward_sources",
    "reward_function_id",
    "reward_function_ids",
    "reward_weights",
    "requires_heartbeat",
)


_TEXT_FIELDS: Final = ("base_model", "dataset_id", "output_name", "method", "resume_from", "preflight")


_BINDING_FIELDS: Final = frozenset(
    {"name", "server", "reward", "weight", "config", "timeout_seconds", "max_attempts", "retry_seconds"}
)


_LONGEST_DURATION_SECONDS: Final = 315_576_000_000


_PLACES: Final = {
    FieldDescriptor.CPPTYPE_STRING: "text, whole characters of UTF-8 only",
    FieldDescriptor.CPPTYPE_INT32: f"a whole number up to {2**31 - 1}",
    FieldDescriptor.CPPTYPE_UINT32: f"a whole number from 0 to {2**32 - 1}",
    FieldDescriptor.CPPTYPE_UINT64: f"a whole number from 0 to {2**64 - 1}",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
}


class Uncarriable(Exception):
    """Data that the message has no place for."""


def spec_to_proto(data: object) -> training_job_pb2.TrainingJobSpec:
    """JSON-like data as a message, unchecked where the message can carry it.

    The gateway checks, so that it tells everything wrong at once, its own findings included. Data that no
    message can carry (a number for a name, a field that does not exist) is refused here, in the same words.
    """
    try:
        return _carry_spec(data)
    except UnicodeEncodeError:
        raise InvalidArgumentError.of("(request)", str(json_fault(data))) from None
    except Uncarriable:
        violations = check_job_spec(data)[1] or [FieldViolation("(request)", _not_json(data))]
        raise InvalidArgumentError(violations) from None


def job_request_to_proto(data: object, fields: Mapping[str, Any]) -> service_pb2.CreateTrainingJobRequest:
    """JSON-like data that creates a job, and further fields, as a message; see `spec_to_proto`."""
    beside: dict[str, Any] = {}
    if isinstance(data, Mapping):
        beside = {name: data[name] for name in BESIDE_SPEC if data.get(name) is not None}
        data = {name: value for name, value in data.items() if name not in BESIDE_SPEC}
    for name in ("reward_source", "reward_function_id"):
        if name in beside:
            beside[f"{name}s"] = [*as_list(f"{name}s", beside.get(f"{name}s", ())), beside.pop(name)]
    return carry(service_pb2.CreateTrainingJobRequest, {"spec": spec_to_proto(data), **beside, **fields})


def json_text(field: str, data: Mapping[str, object]) -> str:
    """JSON-like data as text, or InvalidArgumentError that names the field."""
    try:
        return _json(data)
    except Uncarriable:
        raise InvalidArgumentError.of(field, _not_json(data)) from None


def carry(
    kind: type[AnyMessage], fields: Mapping[str, Any], *, required: Collection[str] = ("id",)
) -> AnyMessage:
    """A message with these fields, or InvalidArgumentError with every one whose value it has no place for,
    and every one of `required` that is there and is None or empty.
    """
    absent = [name for name in required if name in fields and fields[name] in (None, "")]
    try:
        if not absent and all(_fits_as_list(kind, name, value) for name, value in fields.items()):
            return kind(**fields)
    except (TypeError, ValueError):
        pass
    raise InvalidArgumentError(
        [
            FieldViolation(name, f"{shown(value)} is refused: must be {_place(kind, name)}")
            for name, value in fields.items()
            if not _fits(kind, name, value)
        ]
        + [
            FieldViolation(name, f"{shown(fields[name])} names nothing; say which is meant")
            for name in absent
        ]
    )


def as_list(field: str, value: Iterable[Item]) -> Iterable[Item]:
    """What a caller gives for a list, or InvalidArgumentError where it is one text, of which Python would
    take the letters.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidArgumentError.of(
            field, f"{shown(value)} is refused: must be a list, for example [{shown(value)}]"
        )
    return value


def carry_binding(data: object) -> training_job_pb2.RewardBinding:
    """A reward of a request as a message, unchecked. Raises Uncarriable."""
    fields = _mapping(data, _BINDING_FIELDS)
    message = training_job_pb2.RewardBinding(
        name=_text(fields.get("name")),
        server=_text(fields.get("server")),
        reward=_text(fields.get("reward")),
    )
    config = fields.get("config", {})
    if not isinstance(config, Mapping):
        raise Uncarriable
    message.config_json = _json(config)
    if "weight" in fields:
        message.weight = _number(fields["weight"])
    if "timeout_seconds" in fields:
        message.timeout.FromNanoseconds(_nanoseconds(fields["timeout_seconds"]))
    if "max_attempts" in fields:
        attempts = fields["max_attempts"]
        if type(attempts) is not int or not 0 <= attempts < 2**32:
            raise Uncarriable
        message.max_attempts = attempts
    if "retry_seconds" in fields:
        message.retry_time.FromNanoseconds(_nanoseconds(fields["retry_seconds"]))
    return message


def _carry_spec(data: object) -> training_job_pb2.TrainingJobSpec:
    fields = _mapping(data, {*_TEXT_FIELDS, "hyperparameters", "rewards"})
    rewards = fields.get("rewards", [])
    if not isinstance(rewards, list | tuple):
        raise Uncarriable
    hyperparameters = fields.get("hyperparameters", {})
    if not isinstance(hyperparameters, Mapping):
        raise Uncarriable
    return training_job_pb2.TrainingJobSpec(
        **{name: _text(fields.get(name)) for name in _TEXT_FIELDS},
        hyperparameters_json=_json(hyperparameters),
        rewards=[carry_binding(reward) for reward in rewards],
    )


def _mapping(data: object, names: Set[str]) -> Mapping[str, object]:
    if not isinstance(data, Mapping) or not set(data) <= names:
        raise Uncarriable
    return data


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Uncarriable
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Uncarriable
    try:
        return float(value)
    except OverflowError:
        raise Uncarriable from None


def _nanoseconds(value: object) -> int:
    seconds = _number(value)
    if not abs(seconds) <= _LONGEST_DURATION_SECONDS:
        raise Uncarriable
    return round(seconds * 1e9)


def _json(value: Mapping[str, object]) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise Uncarriable from None


def _not_json(data: object) -> str:
    try:
        json.dumps(data)
    except (TypeError, ValueError, RecursionError) as error:
        return f"holds what JSON does not have ({error}); write it as text, or leave it out"
    return "cannot be sent"


def _fits_as_list(kind: type[Message], name: str, value: object) -> bool:
    return not (kind.DESCRIPTOR.fields_by_name[name].is_repeated and isinstance(value, str | bytes))


def _fits(kind: type[Message], name: str, value: object) -> bool:
    if not _fits_as_list(kind, name, value):
        return False
    try:
        kind(**{name: value})
    except (TypeError, ValueError):
        return False
    return True


def _place(kind: type[Message], name: str) -> str:
    """What a field of a message holds, for people."""
    field = kind.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "a mapping of texts"
    what = _PLACES.get(field.cpp_type, "of another type")
    return f"a list, each entry {what}" if field.is_repeated else what
