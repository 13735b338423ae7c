"""Reward servers, what they offer, and reward functions."""

from __future__ import annotations

import json
from typing import Any

from gateway.jobs.ports import OfferedReward
from gateway.rewards import LiveRewardServer, Registration, ReplicaHealth, registration_refusal
from gateway.servicers._convert._values import NANOS, time_to_proto
from gateway.store.reward_functions import RewardFunction
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import reward_function_service_pb2, reward_server_service_pb2
from plaudit.types.access import TlsAccess
from plaudit.types.validation import parse_model


def reward_server_to_proto(live: LiveRewardServer) -> reward_server_service_pb2.RewardServer:
    """A reward server, and what it answers."""
    return reward_server_service_pb2.RewardServer(
        id=live.server.id,
        name=live.server.name,
        addresses=live.server.addresses,
        created_at=time_to_proto(live.server.created_at),
        reachable=live.description.reachable,
        unreachable_reason=live.description.unreachable_reason,
        server_version=live.description.server_version,
        rewards=[_offered_to_proto(reward) for reward in live.description.rewards],
        tls=_tls_to_proto(live.server.access.tls),
        credential=live.server.access.credential or "",
        plaintext=live.server.access.plaintext,
        replicas=[_replica_to_proto(replica) for replica in live.replicas],
        warnings=live.description.warnings,
    )


def registration_from_proto(asked: reward_server_service_pb2.RewardServer) -> Registration:
    """What is asked for, or InvalidArgumentError with everything that is wrong where a name in it is none."""
    data: dict[str, Any] = {"addresses": list(asked.addresses), "plaintext": asked.plaintext}
    if asked.credential:
        data["credential"] = asked.credential
    if asked.HasField("tls"):
        names = ("ca", "client_certificate", "server_name")
        data["tls"] = {name: getattr(asked.tls, name) for name in names if getattr(asked.tls, name)}
    try:
        return parse_model(Registration, data)
    except InvalidArgumentError as error:
        raise registration_refusal(error, asked.name, data["addresses"]) from None


def reward_function_to_proto(
    function: RewardFunction, *, with_source: bool
) -> reward_function_service_pb2.RewardFunction:
    """A reward function."""
    return reward_function_service_pb2.RewardFunction(
        id=function.id,
        name=function.name,
        format=function.format,
        filename=function.filename,
        source=function.source if with_source else "",
        size_bytes=function.size_bytes,
        sha256=function.sha256,
        created_at=time_to_proto(function.created_at),
    )


def _offered_to_proto(reward: OfferedReward) -> reward_server_service_pb2.OfferedReward:
    return reward_server_service_pb2.OfferedReward(
        name=reward.name,
        description=reward.description,
        min_value=reward.min_value,
        max_value=reward.max_value,
        required_columns=reward.required_columns,
        config_schema_json="" if reward.config_schema is None else json.dumps(reward.config_schema),
        problem=reward.problem,
    )


def _tls_to_proto(tls: TlsAccess | None) -> reward_server_service_pb2.RewardServerTls | None:
    if tls is None:
        return None
    return reward_server_service_pb2.RewardServerTls(
        ca=tls.ca or "", client_certificate=tls.client_certificate or "", server_name=tls.server_name or ""
    )


def _replica_to_proto(replica: ReplicaHealth) -> reward_server_service_pb2.RewardServerReplica:
    message = reward_server_service_pb2.RewardServerReplica(
        address=replica.address,
        state=reward_server_service_pb2.RewardServerReplica.State.Value(f"STATE_{replica.state.name}"),
        reason=replica.reason,
        since=time_to_proto(replica.since),
        checked_at=time_to_proto(replica.checked_at),
        server_version=replica.server_version,
    )
    if replica.latency_seconds is not None:
        message.latency.FromNanoseconds(round(replica.latency_seconds * NANOS))
    return message
