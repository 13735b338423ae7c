"""Reward servers, and what they offer."""

from __future__ import annotations

from typing import Any, Literal

from gateway.rest.objects._base import RestObject, Time


class OfferedRewardObject(RestObject):
    """A reward on offer; `config_schema` is null where it takes no configuration. `problem` says why no job
    can use it, and is null where one can.
    """

    name: str
    description: str
    min_value: float | None
    max_value: float | None
    required_columns: list[str]
    config_schema: dict[str, Any] | None
    problem: str | None


class TlsObject(RestObject):
    """TLS towards a reward server; CA and certificate are names."""

    ca: str | None
    client_certificate: str | None
    server_name: str | None


class ReplicaObject(RestObject):
    """One address of a reward server, as it was found at `checked_at`; `reason` is null where it serves.

    `since` is the gateway's first check that found this state, with no other in between.
    """

    address: str
    state: Literal["serving", "not_serving", "unreachable"]
    reason: str | None
    since: Time
    checked_at: Time
    server_version: str | None
    latency_seconds: float | None


class RewardServerObject(RestObject):
    """A registered reward server, and what it answered when this was asked. Secrets are named, never held."""

    id: str
    object: Literal["reward_server"] = "reward_server"
    name: str
    addresses: list[str]
    configured: bool
    reachable: bool
    unreachable_reason: str | None
    server_version: str | None
    rewards: list[OfferedRewardObject]
    tls: TlsObject | None
    credential: str | None
    plaintext: bool
    replicas: list[ReplicaObject]
    warnings: list[str]
    created_at: Time


class RewardServerList(RestObject):
    """Every reward server, by name."""

    object: Literal["list"] = "list"
    data: list[RewardServerObject]
    has_more: Literal[False] = False
