"""The services of one machine: what `plaudit up` and `plaudit demo` run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaudit import service


def local_services(
    data_dir: Path,
    *,
    gateway_grpc: str | None,
    gateway_http: str | None,
    trainer: str | None,
    reward: str | None,
) -> Sequence[service.ServiceCommand]:
    """The services of one machine over one data directory; `start_local` tells the gateway its peers.

    An address that is None is the service's own setting.
    """
    shared = {"PLAUDIT_DATA_DIR": str(data_dir)}
    address = {"address": "--address"}
    return (
        service.ServiceCommand("reward", "reward_service", address, _given(address=reward), shared),
        service.ServiceCommand("trainer", "trainer_service", address, _given(address=trainer), shared),
        service.ServiceCommand(
            "gateway",
            "gateway",
            {"grpc_address": "--grpc-address", "http_address": "--http-address"},
            _given(grpc_address=gateway_grpc, http_address=gateway_http),
            shared,
        ),
    )


def _given(**addresses: str | None) -> dict[str, str]:
    return {name: address for name, address in addresses.items() if address is not None}


@dataclass(frozen=True, slots=True)
class LocalAddresses:
    """Where the services of one machine listen."""

    gateway_grpc: str
    gateway_http: str
    trainer: str
    reward: str


@dataclass(frozen=True, slots=True)
class ConfiguredPeers:
    """Trainers and reward servers that the operator has named for the gateway, as they are written."""

    trainers: Any = None
    reward_servers: Any = None

    def with_local(self, trainer: str, reward: str) -> Mapping[str, str]:
        """The gateway's variables: the services of this machine beside those that were named.

        A setting that has not its type is handed on as it is, so that the gateway tells what is wrong.
        """
        trainers, servers = self.trainers or [], self.reward_servers or {}
        if isinstance(trainers, list):
            trainers = list(dict.fromkeys([trainer, *trainers]))
        if isinstance(servers, dict):
            servers = {"builtin": [reward], **servers}
        return {
            "PLAUDIT_GATEWAY_TRAINERS": json.dumps(trainers),
            "PLAUDIT_GATEWAY_REWARD_SERVERS": json.dumps(servers),
        }


async def start_local(
    supervisor: service.Supervisor,
    commands: Sequence[service.ServiceCommand],
    peers: ConfiguredPeers | None = None,
) -> LocalAddresses:
    """Starts reward server, trainer and gateway; the gateway is told where the other two listen.

    It works with `peers` as well.
    """
    reward, trainer, gateway = commands
    reward_address = (await supervisor.start(reward))["address"]
    trainer_address = (await supervisor.start(trainer))["address"]
    told = service.ServiceCommand(
        gateway.name,
        gateway.module,
        gateway.address_options,
        gateway.addresses,
        {
            **gateway.environment,
            **(peers or ConfiguredPeers()).with_local(trainer_address, reward_address),
        },
    )
    addresses = await supervisor.start(told)
    return LocalAddresses(
        addresses["grpc_address"], addresses["http_address"], trainer_address, reward_address
    )
