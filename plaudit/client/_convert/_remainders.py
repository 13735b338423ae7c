"""What only the gateway can tell of a job that no message can carry as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plaudit.client._convert._carrying import BESIDE_SPEC, job_request_to_proto
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import training_job_service_pb2 as service_pb2
from plaudit.types.validation import check_job_spec

_NAME: Final = "output_name"


def remainder_of_job(data: object) -> service_pb2.CreateTrainingJobRequest:
    """What a message can carry of JSON-like data that creates a job, to be checked.

    It has no name, which the gateway refuses: so no job comes of it, and what the gateway does not know is
    told field by field.
    """
    return job_request_to_proto(_carried(data), {"validate_only": True})


def refused_by_both(
    data: object, refused: InvalidArgumentError, told: InvalidArgumentError
) -> InvalidArgumentError:
    """`refused`, which was said here of `data`, with what the gateway has `told` of its remainder besides."""
    own = {violation.field: violation for violation in check_job_spec(_spec_in(data))[1]}
    # Wrong only because something was left out.
    apart = {_NAME} | {v.field for v in check_job_spec(_spec_in(_carried(data)))[1] if v.field not in own}
    fields = {violation.field for violation in refused.violations}
    found = list(refused.violations)
    if _NAME in own and _NAME not in fields:
        found.append(own[_NAME])
    found += [v for v in told.violations if v.field not in apart and not _is_within(v.field, fields)]
    return InvalidArgumentError(found, reason=refused.reason)


def _carried(data: object) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        return {}
    carried = {name: value for name, value in data.items() if name != _NAME and _is_carried({name: value})}
    rewards = data.get("rewards")
    if "rewards" not in carried and isinstance(rewards, list | tuple):
        carried["rewards"] = [_carried_reward(reward) for reward in rewards]
    return carried


def _carried_reward(reward: object) -> dict[str, Any]:
    """Also of what is no reward at all: those behind it keep their numbers."""
    fields = reward if isinstance(reward, Mapping) else {}
    return {name: value for name, value in fields.items() if _is_carried({"rewards": [{name: value}]})}


def _is_carried(data: Mapping[str, Any]) -> bool:
    try:
        job_request_to_proto(data, {})
    except InvalidArgumentError:
        return False
    return True


def _spec_in(data: object) -> object:
    if not isinstance(data, Mapping):
        return data
    return {name: value for name, value in data.items() if name not in BESIDE_SPEC}


def _is_within(field: str, fields: set[str]) -> bool:
    return any(field == each or field.startswith((f"{each}.", f"{each}[")) for each in fields)
