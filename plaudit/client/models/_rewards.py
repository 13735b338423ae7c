"""Reward servers, what they offer, and reward functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from plaudit.types.access import ServerAccess


@dataclass(frozen=True, slots=True)
class OfferedReward:
    """A reward that a server offers."""

    name: str
    description: str
    min_value: float | None
    max_value: float | None
    required_columns: tuple[str, ...]
    config_schema_json: str
    problem: str
    """Why no job can use it; "" where one can."""


class ReplicaState(StrEnum):
    """What a check found at an address of a reward server."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    """Something answers there, but does not serve."""
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class RewardServerReplica:
    """An address of a reward server, as it was found at `checked_at`; `reason` is "" where it serves.

    `since` is the first check that found this state; `latency_seconds` None where it did not describe itself.
    """

    address: str
    state: ReplicaState
    reason: str
    since: datetime | None
    checked_at: datetime | None
    server_version: str
    latency_seconds: float | None


@dataclass(frozen=True, slots=True)
class RewardServer:
    """A registered reward server, as it answered when it was read. Secrets are named, never held."""

    id: str
    name: str
    addresses: tuple[str, ...]
    created_at: datetime | None
    reachable: bool
    unreachable_reason: str
    server_version: str
    rewards: tuple[OfferedReward, ...]
    access: ServerAccess
    replicas: tuple[RewardServerReplica, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A Python file with a function that scores. `source` is "" where it comes from a list."""

    id: str
    name: str
    format: str
    filename: str
    source: str
    size_bytes: int
    sha256: str
    created_at: datetime | None
