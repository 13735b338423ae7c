"""What jobs need to know of datasets and reward servers, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.jobs.starts import SourceJob
from gateway.store.datasets import StoredDataset
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import FieldViolation


@dataclass(frozen=True, slots=True)
class OfferedReward:
    """A reward that a server offers. `None` as a bound is unbounded.

    `config_schema` is the JSON Schema of its configuration; None: it takes none. `problem` says why no job
    can use it, and is "" where one can.
    """

    name: str
    description: str = ""
    min_value: float | None = None
    max_value: float | None = None
    required_columns: tuple[str, ...] = ()
    config_schema: Mapping[str, Any] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """What a reward server says of itself now. `rewards` is empty where it did not answer.

    `unreachable_reason` is for people, and "" where the server answered. `incompatible` says why no trainer
    can talk to it, and is "" where one can, or where it did not answer. `warnings` are for people.
    """

    reachable: bool
    unreachable_reason: str = ""
    server_version: str = ""
    rewards: tuple[OfferedReward, ...] = ()
    incompatible: str = ""
    warnings: tuple[str, ...] = ()

    def can_run(self, reward: str) -> bool:
        """Whether the server answers, and offers a reward of this name that jobs can use."""
        return self.reachable and any(offer.name == reward and not offer.problem for offer in self.rewards)


@dataclass(frozen=True, slots=True)
class AskedReward:
    """A reward of a new job, as it is put to its server. `field` is its path in the request."""

    field: str
    name: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckedConfigs:
    """What a server itself says of configurations: what is wrong with them, and, by `AskedReward.field`, the
    dataset columns that rewards need under theirs. Of one that is away, nothing.
    """

    refused: Sequence[FieldViolation] = ()
    required_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class DatasetCatalog(Protocol):
    """The datasets that jobs may name."""

    async def find(self, id_or_name: str) -> StoredDataset | None:
        """The dataset with this id, else the one with this name, else None."""
        ...


class CheckpointCatalog(Protocol):
    """The jobs whose checkpoints may be started from."""

    async def find(self, job_id: str) -> SourceJob | None:
        """The job with this id, or None."""
        ...


class RewardServerCatalog(Protocol):
    """The reward servers that jobs may name."""

    async def find(self, id_or_name: str) -> RegisteredRewardServer | None:
        """The server with this id, else the one with this name, else None."""
        ...

    async def describe(self, server: RegisteredRewardServer) -> ServerDescription:
        """Asks the server what it offers. Takes a bounded time and never raises for a server that is away."""
        ...

    async def check_configs(
        self, server: RegisteredRewardServer, rewards: Sequence[AskedReward]
    ) -> CheckedConfigs:
        """What the server itself says of these configurations, by paths of the request.

        Takes a bounded time; a server that is away, or does not know the question, says nothing.
        """
        ...
