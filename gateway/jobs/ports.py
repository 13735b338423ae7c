"""What jobs need to know of datasets and reward servers, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.store.datasets import StoredDataset
from gateway.store.reward_servers import RegisteredRewardServer


@dataclass(frozen=True, slots=True)
class OfferedReward:
    """A reward that a server offers. `None` as a bound is unbounded.

    `config_schema` is the JSON Schema of its configuration; None: it takes none.
    """

    name: str
    description: str = ""
    min_value: float | None = None
    max_value: float | None = None
    required_columns: tuple[str, ...] = ()
    config_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """What a reward server says of itself now. `rewards` is empty where it did not answer.

    `unreachable_reason` is for people, and "" where the server answered.
    """

    reachable: bool
    unreachable_reason: str = ""
    server_version: str = ""
    rewards: tuple[OfferedReward, ...] = ()


class DatasetCatalog(Protocol):
    """The datasets that jobs may name."""

    async def find(self, id_or_name: str) -> StoredDataset | None:
        """The dataset with this id, else the one with this name, else None."""
        ...


class RewardServerCatalog(Protocol):
    """The reward servers that jobs may name."""

    async def find(self, id_or_name: str) -> RegisteredRewardServer | None:
        """The server with this id, else the one with this name, else None."""
        ...

    async def describe(self, server: RegisteredRewardServer) -> ServerDescription:
        """Asks the server what it offers. Takes a bounded time and never raises for a server that is away."""
        ...
