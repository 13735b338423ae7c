"""Reward servers, what they offer, and reward functions."""

from __future__ import annotations

from plaudit.client import models
from plaudit.client._convert._reading import reads_answer
from plaudit.client._convert._values import time_from_proto
from plaudit.gateway.v1 import reward_function_service_pb2, reward_server_service_pb2
from plaudit.types.access import ServerAccess, TlsAccess


@reads_answer
def reward_server_from_proto(message: reward_server_service_pb2.RewardServer) -> models.RewardServer:
    """A reward server."""
    return models.RewardServer(
        id=message.id,
        name=message.name,
        addresses=tuple(message.addresses),
        created_at=time_from_proto(message, "created_at"),
        reachable=message.reachable,
        unreachable_reason=message.unreachable_reason,
        server_version=message.server_version,
        rewards=tuple(
            models.OfferedReward(
                name=reward.name,
                description=reward.description,
                min_value=reward.min_value if reward.HasField("min_value") else None,
                max_value=reward.max_value if reward.HasField("max_value") else None,
                required_columns=tuple(reward.required_columns),
                config_schema_json=reward.config_schema_json,
                problem=reward.problem,
            )
            for reward in message.rewards
        ),
        access=_access_from_proto(message),
        replicas=tuple(_replica_from_proto(replica) for replica in message.replicas),
        warnings=tuple(message.warnings),
    )


@reads_answer
def reward_function_from_proto(
    message: reward_function_service_pb2.RewardFunction,
) -> models.RewardFunction:
    """A reward function."""
    return models.RewardFunction(
        id=message.id,
        name=message.name,
        format=message.format,
        filename=message.filename,
        source=message.source,
        size_bytes=message.size_bytes,
        sha256=message.sha256,
        created_at=time_from_proto(message, "created_at"),
    )


def _access_from_proto(message: reward_server_service_pb2.RewardServer) -> ServerAccess:
    tls = TlsAccess.model_construct(
        ca=message.tls.ca or None,
        client_certificate=message.tls.client_certificate or None,
        server_name=message.tls.server_name or None,
    )
    return ServerAccess.model_construct(
        tls=tls if message.HasField("tls") else None,
        credential=message.credential or None,
        plaintext=message.plaintext,
    )


def _replica_from_proto(
    message: reward_server_service_pb2.RewardServerReplica,
) -> models.RewardServerReplica:
    state = reward_server_service_pb2.RewardServerReplica.State.Name(message.state)
    return models.RewardServerReplica(
        address=message.address,
        state=models.ReplicaState(state.removeprefix("STATE_").lower()),
        reason=message.reason,
        since=time_from_proto(message, "since"),
        checked_at=time_from_proto(message, "checked_at"),
        server_version=message.server_version,
        latency_seconds=message.latency.ToNanoseconds() / 1e9 if message.HasField("latency") else None,
    )
