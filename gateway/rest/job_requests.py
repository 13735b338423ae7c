"""The body that creates a job: our spec, and of other clients' dialect what changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.validation import check_job_spec, shown

_REWARDS: Final = "name rewards of registered reward servers in rewards"
_UNSUPPORTED: Final[Mapping[str, str]] = {
    "gpu": "leave it out: jobs run on the trainers that the gateway knows",
    "provider": "leave it out: jobs run on the trainers that the gateway knows",
    "region": "leave it out: jobs run on the trainers that the gateway knows",
    "checkpoint_destination": "leave it out: checkpoints are kept under the artifact root",
    "hf_push": "leave it out, and upload the finished model yourself",
    "requires_heartbeat": "send false or leave it out: jobs run on without their client",
    "reward_function_id": _REWARDS,
    "reward_function_ids": _REWARDS,
    "reward_source": _REWARDS,
    "reward_sources": _REWARDS,
    "reward_weights": "give each of rewards its weight",
}
"""Fields of the dialect that are not honoured, with the way out. Refused, never accepted and ignored."""


def spec_data(body: Mapping[str, Any]) -> dict[str, Any]:
    """The job spec in the body, unchecked. Raises InvalidArgumentError where the body asks for what is not
    honoured, and then with all else that is wrong in it.
    """
    data = {name: value for name, value in body.items() if name not in _UNSUPPORTED}
    violations = [
        FieldViolation(name, f"{shown(body[name])} is not supported by this version; {way_out}")
        for name, way_out in _UNSUPPORTED.items()
        if body.get(name) is not None and not (name == "requires_heartbeat" and body[name] is False)
    ]
    if violations:
        raise InvalidArgumentError([*violations, *check_job_spec(data)[1]])
    return data
