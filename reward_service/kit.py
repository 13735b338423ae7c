"""The kit for reward authors: write an async function, describe it, serve it.

from reward_service import Item, reward, serve

@reward(description="1 where the completion ends with a full stop.", min_value=0, max_value=1)
async def ends_well(item: Item) -> float:
    return 1.0 if item.text.rstrip().endswith(".") else 0.0

if __name__ == "__main__":
    serve([ends_well])
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from plaudit.errors import FieldViolation
from plaudit.rpc import GrpcServer, ListenSecurity
from plaudit.service import DEFAULT_ADDRESSES, configure_logging, run_service
from plaudit.types.scoring import (
    ChatMessage,
    Completion,
    Examples,
    Failed,
    FailureCode,
    FinishReason,
    NotApplicable,
    Outcome,
    Prompt,
    Purpose,
    Scored,
)
from reward_service._convert import server_info
from reward_service._examples import ExampleWriter
from reward_service._item import Item
from reward_service._reward import Answer, Reward, Scope, reward
from reward_service._scoring import Catalog
from reward_service._servicer import SERVICE_NAME, RewardServicer, register
from reward_service.limits import ServerLimits
from reward_service.session import ScoreEngine

DEFAULT_GRACE_SECONDS = 10.0

OpenRewards: TypeAlias = Callable[[], AbstractAsyncContextManager[Sequence[Reward]]]
"""Opens rewards that hold something: a client, a pool, a file."""


class RewardServer:
    """Serves rewards by plaudit.reward.v1, with health and reflection."""

    def __init__(
        self,
        rewards: Sequence[Reward],
        *,
        name: str = "rewards",
        version: str = "0",
        limits: ServerLimits | None = None,
    ) -> None:
        """`name` and `version` are shown to people. Two rewards of one name: InvalidArgumentError."""
        limits = limits or ServerLimits()
        catalog = Catalog(rewards, check_timeout=limits.check_timeout_seconds)
        self.engine = ScoreEngine(catalog.select, limits)
        self._examples = ExampleWriter(catalog.rewards)
        self._info = server_info(name, version, rewards, limits)
        self._grpc: GrpcServer | None = None

    async def start(self, address: str = "127.0.0.1:0", security: ListenSecurity | None = None) -> int:
        """Listens on `host:port` (port 0: any that is free) and returns the port.

        Without `security` only loopback is listened on. Raises InvalidArgumentError where the address needs
        more than that, FailedPreconditionError where a file of it cannot be used.
        """
        self._grpc = GrpcServer([SERVICE_NAME], security=security)
        register(RewardServicer(self.engine, self._examples, self._info), self._grpc.server)
        return await self._grpc.start(address)

    def change_window(self, window: int) -> None:
        """Announces to every session how many completions it may have in flight from now on, at least 1."""
        self.engine.change_window(window)

    async def stop(self, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        """Announces the end, serves what was accepted for at most `grace` seconds, and stops."""
        if self._grpc is None:
            return
        await self._grpc.drain()
        await self.engine.drain(grace)
        # For answers that are on their way out.
        await self._grpc.stop(1.0)
        self._grpc = None

    async def serve(
        self,
        address: str,
        stop: asyncio.Event,
        grace: float = DEFAULT_GRACE_SECONDS,
        *,
        security: ListenSecurity | None = None,
    ) -> None:
        """Serves until `stop` is set. Prints the address on stdout as one line of JSON. See `start`."""
        host, _, _ = address.rpartition(":")
        port = await self.start(address, security)
        sys.stdout.write(json.dumps({"service": "reward", "address": f"{host}:{port}"}) + "\n")
        sys.stdout.flush()
        await stop.wait()
        await self.stop(grace)


def serve(
    rewards: Sequence[Reward] | OpenRewards,
    *,
    name: str = "rewards",
    version: str = "0",
    limits: ServerLimits | None = None,
    security: ListenSecurity | None = None,
    arguments: Sequence[str] | None = None,
) -> None:
    """Serves rewards as a program: reads the command line, runs until SIGTERM or ctrl-C, and exits.

    `rewards` are a list, or, where they need something that must be opened and closed, as a client of HTTP or
    a pool of processes, a function that returns an async context manager of a list:

    @asynccontextmanager
    async def my_rewards() -> AsyncIterator[list[Reward]]:
        async with httpx.AsyncClient() as client:

            @reward(description="What the judge says.")
            async def judged(item: Item) -> float: ...

            yield [judged]

    serve(my_rewards)

    It is entered before the server listens, and left after its last answer.

    `security` says whom the server lets in; beyond loopback it must. The command line may say it too, and
    wins.

    `arguments` are those of the command line (default: this program's): `--address HOST:PORT`,
    `--tls-cert`, `--tls-key`, `--client-ca` and `--token-file` with a path each, `--plaintext`, and
    `--die-with-stdin`, which ends the server with the process that started it.
    """
    parser = argparse.ArgumentParser(description=f"Reward server {name} (plaudit.reward.v1).")
    parser.add_argument(
        "--address", default=DEFAULT_ADDRESSES.reward, help="host:port; port 0 takes a free one (%(default)s)"
    )
    parser.add_argument("--die-with-stdin", action="store_true", help="exit when stdin is closed")
    _add_security_options(parser)
    options = parser.parse_args(arguments)
    configure_logging(name)
    # A list is checked here, where its author sees the traceback.
    listed = None if callable(rewards) else RewardServer(rewards, name=name, version=version, limits=limits)

    async def run(stop: asyncio.Event) -> None:
        told = _security_of(options, security)
        if listed is not None:
            await listed.serve(options.address, stop, security=told)
            return
        assert callable(rewards)
        async with rewards() as opened:
            server = RewardServer(opened, name=name, version=version, limits=limits)
            await server.serve(options.address, stop, security=told)

    sys.exit(run_service(run, die_with_stdin=options.die_with_stdin))


def _add_security_options(parser: argparse.ArgumentParser) -> None:
    for option, what in (
        ("--tls-cert", "certificate with its chain, PEM: speak TLS"),
        ("--tls-key", "its private key, PEM, mode 0600"),
        ("--client-ca", "let in whose certificate this CA signs, PEM"),
        ("--token-file", "let in who sends one of its tokens, one a line, mode 0600"),
    ):
        parser.add_argument(option, metavar="PATH", help=what)
    parser.add_argument(
        "--plaintext", action="store_const", const=True, help="no TLS beyond this machine: a proxy speaks it"
    )


def _security_of(options: argparse.Namespace, given: ListenSecurity | None) -> ListenSecurity:
    """What the command line says, on top of what the program says. Raises InvalidArgumentError."""
    told = {name: getattr(options, name) for name in ListenSecurity.model_fields}
    base = given.model_dump() if given is not None else {}
    return ListenSecurity.of({**base, **{name: value for name, value in told.items() if value is not None}})


__all__ = [
    "Answer",
    "ChatMessage",
    "Completion",
    "Examples",
    "Failed",
    "FailureCode",
    "FieldViolation",
    "FinishReason",
    "Item",
    "ListenSecurity",
    "NotApplicable",
    "OpenRewards",
    "Outcome",
    "Prompt",
    "Purpose",
    "Reward",
    "RewardServer",
    "Scope",
    "Scored",
    "ServerLimits",
    "reward",
    "serve",
]
