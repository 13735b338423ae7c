"""The reward servers that jobs may name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from gateway.jobs.ports import AskedReward, CheckedConfigs, ServerDescription
from gateway.rewards.changes import ChangeNotes
from gateway.rewards.descriptions import needed_columns
from gateway.rewards.registration import Registration, registration_violations
from gateway.rewards.replicas import ReplicaHealth
from gateway.rewards.watch import ServerWatch
from gateway.store import Session, Store
from gateway.store.ids import new_id
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    PlauditError,
    ResourceExhaustedError,
)
from plaudit.reward.v1 import reward_service_pb2
from plaudit.scoring import job_field
from plaudit.service import Secrets
from plaudit.types.validation import shown

MAX_SERVERS: Final = 256
DEFAULT_PAUSE_SECONDS: Final = 10.0

_ASKED_AT_ONCE: Final = 64
_MAX_TEXT_LENGTH: Final = 1_000
_MAX_REFUSALS: Final = 20


@dataclass(frozen=True, slots=True)
class LiveRewardServer:
    """A registered server, and what its replicas answered when this was asked for."""

    server: RegisteredRewardServer
    description: ServerDescription
    replicas: tuple[ReplicaHealth, ...]


class RewardServerRegistry:
    """Registers, shows, watches and forgets reward servers; for jobs, a
    `gateway.jobs.ports.RewardServerCatalog`.
    """

    def __init__(
        self, store: Store, secrets: Secrets, *, pause_seconds: float = DEFAULT_PAUSE_SECONDS
    ) -> None:
        """Every server is asked again about every `pause_seconds`; `secrets` are the gateway's own."""
        self._store = store
        self._secrets = secrets
        self._pause_seconds = pause_seconds
        self._slots = asyncio.Semaphore(_ASKED_AT_ONCE)
        self._changes = ChangeNotes(store)
        self._watches: dict[str, tuple[ServerWatch, asyncio.Task[None]]] = {}

    async def start(self, configured: Mapping[str, Registration]) -> None:
        """Registers the servers that the settings name, as they stand there, and begins to watch all.

        A server that they no longer name stays, and can be deleted. Raises InvalidArgumentError, everything
        that is wrong at once.
        """
        violations = [
            FieldViolation(f"reward_servers.{name}.{violation.field}", violation.message)
            for name, registration in configured.items()
            for violation in registration_violations(name, registration)
        ]
        if violations:
            raise InvalidArgumentError(violations)
        async with self._store.transaction() as session:
            for server in await session.reward_servers.list():
                if server.configured and server.name not in configured:
                    await session.reward_servers.update(replace(server, configured=False))
            for name, registration in configured.items():
                known = await session.reward_servers.find(name)
                if known is None:
                    await session.reward_servers.insert(_new(name, registration, configured=True))
                else:
                    await session.reward_servers.update(
                        replace(
                            known,
                            addresses=registration.addresses,
                            access=registration.access,
                            configured=True,
                        )
                    )
            servers = await session.reward_servers.list()
        for server in servers:
            self._begin(server)

    async def close(self) -> None:
        """Ends all watches."""
        watches, self._watches = list(self._watches.values()), {}
        for _, task in watches:
            task.cancel()
        if watches:
            await asyncio.wait([task for _, task in watches])
        await asyncio.gather(*(watch.close() for watch, _ in watches))

    async def find(self, id_or_name: str) -> RegisteredRewardServer | None:
        """The server with this id, else the one with this name, else None."""
        async with self._store.snapshot() as session:
            return await session.reward_servers.find(id_or_name)

    async def describe(self, server: RegisteredRewardServer) -> ServerDescription:
        """Asks the server what it offers. Takes a bounded time, and never raises for one that is away."""
        return (await self._live(server)).description

    async def check_configs(
        self, server: RegisteredRewardServer, rewards: Sequence[AskedReward]
    ) -> CheckedConfigs:
        """What the server itself says of these configurations: a batch without completions is put to
        ScoreOnce. A server that is away, or does not know the question, says nothing.
        """
        probe = await self._watch(server).probe()
        if probe is None or not rewards:
            return CheckedConfigs()
        request = reward_service_pb2.ScoreOnceRequest(
            rewards=[
                reward_service_pb2.RewardSelection(
                    key=f"r{index}", name=reward.name, config_json=json.dumps(reward.config)
                )
                for index, reward in enumerate(rewards)
            ],
            batch=reward_service_pb2.Batch(batch_id=str(uuid4())),
        )
        try:
            answer = await probe.score_once(request)
        except InvalidArgumentError as error:
            return CheckedConfigs(_of_configs(error.violations, rewards))
        except PlauditError:
            # It is away, has no ScoreOnce, or is busy: the session that a run opens will tell.
            return CheckedConfigs()
        fields = {f"r{index}": reward.field for index, reward in enumerate(rewards)}
        return CheckedConfigs(
            required_columns={
                fields[needs.key]: needed_columns(needs.required_columns)
                for needs in answer.needs
                if needs.key in fields
            }
        )

    async def get(self, id_or_name: str) -> LiveRewardServer:
        """The server, as it answers now. NotFoundError."""
        async with self._store.snapshot() as session:
            server = await _required(session, id_or_name)
        return await self._live(server)

    async def list(self) -> list[LiveRewardServer]:
        """Every server by name, as each answers now; they are asked at the same time."""
        async with self._store.snapshot() as session:
            servers = await session.reward_servers.list()
        return list(await asyncio.gather(*(self._live(server) for server in servers)))

    async def create(self, name: str, registration: Registration) -> LiveRewardServer:
        """Registers a server, which need not be up. The same name with the same addresses and access returns
        the same server; with others it raises AlreadyExistsError (NAME_TAKEN). InvalidArgumentError names all
        that is wrong.
        """
        violations = registration_violations(name, registration)
        if violations:
            raise InvalidArgumentError(violations)
        async with self._store.transaction() as session:
            server = await session.reward_servers.find(name)
            if server is None:
                if len(await session.reward_servers.list()) >= MAX_SERVERS:
                    raise ResourceExhaustedError(
                        f"{MAX_SERVERS} reward servers are registered, which is the most; delete some",
                        reason="TOO_MANY_REWARD_SERVERS",
                    )
                server = _new(name, registration, configured=False)
                await session.reward_servers.insert(server)
            else:
                _require_same(server, registration)
        if server.id not in self._watches:
            self._begin(server)
        return await self._live(server)

    async def delete(self, id_or_name: str) -> None:
        """Forgets a server. FailedPreconditionError (IN_USE) while a job that is not over needs it, or where
        the settings name it.
        """
        async with self._store.transaction() as session:
            server = await _required(session, id_or_name)
            if server.configured:
                raise FailedPreconditionError(
                    f"reward server {server.name} stands in the gateway's settings; take it out of there",
                    reason="IN_USE",
                )
            jobs = await session.jobs.needing_reward_server(server.id)
            if jobs:
                raise FailedPreconditionError(
                    f"reward server {server.name} is needed by {', '.join(jobs[:3])}; cancel what needs it, "
                    "or wait",
                    reason="IN_USE",
                )
            await session.reward_servers.delete(server.id)
        watched = self._watches.pop(server.id, None)
        if watched is not None:
            watched[1].cancel()
        self._changes.forget(server.id)

    async def _live(self, server: RegisteredRewardServer) -> LiveRewardServer:
        found = await self._watch(server).check()
        return LiveRewardServer(server, found.description, found.health)

    def _begin(self, server: RegisteredRewardServer) -> None:
        watch = self._new_watch(server)
        self._watches[server.id] = watch, asyncio.create_task(watch.run())

    def _watch(self, server: RegisteredRewardServer) -> ServerWatch:
        """The watch of a server; one for this question only where the server was just forgotten."""
        watched = self._watches.get(server.id)
        return self._new_watch(server) if watched is None else watched[0]

    def _new_watch(self, server: RegisteredRewardServer) -> ServerWatch:
        return ServerWatch(
            server,
            self._secrets,
            slots=self._slots,
            pause_seconds=self._pause_seconds,
            on_check=self._changes.note,
        )


def _of_configs(violations: Sequence[FieldViolation], rewards: Sequence[AskedReward]) -> list[FieldViolation]:
    """What is wrong with `rewards`, by paths of the job; what else the server dislikes is our own doing."""
    fields = {f"rewards[{index}]": reward.field for index, reward in enumerate(rewards)}
    refused = []
    for violation in violations[:_MAX_REFUSALS]:
        field = job_field(violation.field[:_MAX_TEXT_LENGTH], range(len(rewards)))
        head, bracket, path = field.partition("]")
        path = ".reward" if path == ".name" else path
        if f"{head}{bracket}" in fields:
            refused.append(
                FieldViolation(
                    f"{fields[f'{head}{bracket}']}{path}",
                    violation.message[:_MAX_TEXT_LENGTH] or "is refused",
                )
            )
    return refused


def _require_same(server: RegisteredRewardServer, registration: Registration) -> None:
    if set(server.addresses) != set(registration.addresses):
        raise AlreadyExistsError(
            f"the name {server.name} belongs to a reward server at {', '.join(server.addresses)}; choose "
            "another name, or delete that one"
        )
    if server.access != registration.access:
        raise AlreadyExistsError(
            f"the name {server.name} belongs to a reward server that is spoken to in another way "
            f"({server.access.model_dump_json(exclude_none=True)}); choose another name, or delete that one"
        )


async def _required(session: Session, id_or_name: str) -> RegisteredRewardServer:
    server = await session.reward_servers.find(id_or_name)
    if server is None:
        raise NotFoundError(
            f"there is no reward server {shown(id_or_name)}; list the reward servers to see their names"
        )
    return server


def _new(name: str, registration: Registration, *, configured: bool) -> RegisteredRewardServer:
    return RegisteredRewardServer(
        new_id("rs"),
        name,
        registration.addresses,
        configured,
        datetime.now(UTC),
        registration.access,
    )
