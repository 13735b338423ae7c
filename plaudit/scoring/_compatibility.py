"""What a replica says of itself, and whether the job can use it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

from plaudit.errors import (
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    PermissionDeniedError,
    PlauditError,
    UnauthenticatedError,
)
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import MAX_MESSAGE_BYTES, NO_FIELD, error_from_rpc
from plaudit.scoring.combine import MAX_ABSOLUTE_REWARD
from plaudit.types.jobs import RewardBinding
from plaudit.types.scoring import PROTOCOL_VERSION
from plaudit.types.texts import one_line

_GRPC_DEFAULT_BYTES: Final = 4 * 1024 * 1024
_NO_LIMIT: Final = 2**31
_LONGEST_VERSION: Final = 200
_LONGEST_LIST: Final = 1_000

USELESS_STATUSES: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Coming back is useless until a person changes something."""

_SELECTION = re.compile(r"^(?:open\.)?rewards\[(\d+)\](?:\.config_json)?")


class UselessError(Exception):
    """A replica will never do as it is. `error` is what to tell the user."""

    def __init__(self, error: PlauditError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class RewardRules:
    """What a replica promises of one reward's values."""

    low: float
    """Never below -1e6, nor `high` above 1e6: values beyond are failures whatever the server promises."""
    high: float
    is_deterministic: bool
    whole_group: bool


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """A replica as it described itself, in terms of the job's rewards."""

    version: str
    rules: Mapping[str, RewardRules]
    """By reward key, the name in the job."""
    max_batch_completions: int
    max_frame_bytes: int
    retains_results: bool


def describe(
    info: pb.GetServerInfoResponse, server: str, bindings: Sequence[RewardBinding]
) -> ServerDescription:
    """Reads a description, or raises UselessError with everything in it that the job cannot use."""
    problems: list[str] = []
    if not info.min_protocol_version <= PROTOCOL_VERSION <= info.max_protocol_version:
        problems.append(
            f"it speaks revisions {info.min_protocol_version} to {info.max_protocol_version} of "
            f"plaudit.reward.v1, and this client speaks {PROTOCOL_VERSION}; upgrade the older of the two"
        )
    offered = {reward.name: reward for reward in info.rewards}
    for binding in bindings:
        if binding.reward not in offered:
            names = one_line(", ".join(offered), _LONGEST_LIST) or "none"
            problems.append(f"it has no reward {binding.reward!r}; it offers: {names}")
    if problems:
        raise UselessError(
            FailedPreconditionError(
                f"reward server {server!r} cannot be used: {'; '.join(problems)}",
                reason="REWARD_SERVER_UNUSABLE",
            )
        )
    limits = info.limits
    return ServerDescription(
        version=one_line(info.server_version, _LONGEST_VERSION),
        rules={binding.name: _rules(offered[binding.reward]) for binding in bindings},
        max_batch_completions=limits.max_batch_completions or _NO_LIMIT,
        max_frame_bytes=min(limits.max_frame_bytes or _GRPC_DEFAULT_BYTES, MAX_MESSAGE_BYTES),
        retains_results=info.capabilities.HasField("result_retention"),
    )


def useless(
    failure: grpc.aio.AioRpcError,
    method: str,
    server: str,
    bindings: Sequence[RewardBinding],
    positions: Sequence[int],
) -> UselessError:
    """The error of a status after which coming back is useless; `method` of the service ended with it.

    `positions` are the places of `bindings` among the job's rewards, so that a wrong configuration is named
    as the user wrote it.
    """
    error = error_from_rpc(failure)
    about = f"reward server {server!r}"
    if isinstance(error, InvalidArgumentError):
        return UselessError(
            InvalidArgumentError(
                [
                    FieldViolation(field, f"{about} refuses it: {v.message}")
                    for v in error.violations
                    for field in _job_fields(v.field, positions)
                ]
            )
        )
    if isinstance(error, UnauthenticatedError | PermissionDeniedError):
        return UselessError(
            type(error)(f"{about} refuses the credential: {error.message}", reason=error.reason)
        )
    return UselessError(
        FailedPreconditionError(
            # A base class that was generated answers so for what its author has not written.
            f"{about} does not have {method} of plaudit.reward.v1 ({error.message}); check its address, and "
            "that it is a RewardService which implements GetServerInfo and Score"
            if failure.code() is grpc.StatusCode.UNIMPLEMENTED
            else f"{about} cannot be used: {error.message}",
            reason=error.reason,
        )
    )


def _rules(reward: pb.Reward) -> RewardRules:
    return RewardRules(
        low=max(reward.min_value, -MAX_ABSOLUTE_REWARD)
        if reward.HasField("min_value")
        else -MAX_ABSOLUTE_REWARD,
        high=min(reward.max_value, MAX_ABSOLUTE_REWARD)
        if reward.HasField("max_value")
        else MAX_ABSOLUTE_REWARD,
        is_deterministic=reward.deterministic,
        whole_group=reward.scope == pb.Reward.SCOPE_GROUP,
    )


def _job_fields(field: str, positions: Sequence[int]) -> list[str]:
    """The fields of the job that a field of a session stands for; all rewards, where it names none."""
    if field == NO_FIELD:
        return [f"rewards[{position}]" for position in positions]
    return [job_field(field, positions)]


def job_field(field: str, positions: Sequence[int]) -> str:
    """`rewards[0].config_json.x` of a session as `rewards[3].config.x` of the job."""
    match = _SELECTION.match(field)
    if match is None or int(match[1]) >= len(positions):
        return field
    config = ".config" if match[0].endswith(".config_json") else ""
    return f"rewards[{positions[int(match[1])]}]{config}{field[match.end() :]}"
