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
from collections.abc import Sequence

import structlog

from plaudit.rpc import GrpcServer
from plaudit.service import DEFAULT_ADDRESSES, configure_logging, run_service
from plaudit.types.addresses import is_loopback
from plaudit.types.scoring import (
    ChatMessage,
    Completion,
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
from reward_service._item import Item
from reward_service._reward import Answer, Reward, Scope, reward
from reward_service._scoring import Catalog
from reward_service._servicer import SERVICE_NAME, RewardServicer, register
from reward_service.limits import ServerLimits
from reward_service.session import ScoreEngine

DEFAULT_GRACE_SECONDS = 10.0

log = structlog.get_logger(__name__)


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
        catalog = Catalog(rewards)
        self.engine = ScoreEngine(catalog.select, limits)
        self._info = server_info(name, version, rewards, limits)
        self._grpc: GrpcServer | None = None

    async def start(self, address: str = "127.0.0.1:0") -> int:
        """Listens on `host:port` (port 0: any that is free) and returns the port."""
        self._grpc = GrpcServer([SERVICE_NAME])
        register(RewardServicer(self.engine, self._info), self._grpc.server)
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

    async def serve(self, address: str, stop: asyncio.Event, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        """Serves until `stop` is set. Prints the address on stdout as one line of JSON."""
        host, _, _ = address.rpartition(":")
        port = await self.start(address)
        sys.stdout.write(json.dumps({"service": "reward", "address": f"{host}:{port}"}) + "\n")
        sys.stdout.flush()
        await stop.wait()
        await self.stop(grace)


def serve(
    rewards: Sequence[Reward],
    *,
    name: str = "rewards",
    version: str = "0",
    limits: ServerLimits | None = None,
    arguments: Sequence[str] | None = None,
) -> None:
    """Serves rewards as a program: reads the command line, runs until SIGTERM or ctrl-C, and exits.

    `arguments` are those of the command line (default: this program's): `--address HOST:PORT` and
    `--die-with-stdin`, which ends the server with the process that started it.
    """
    parser = argparse.ArgumentParser(description=f"Reward server {name} (plaudit.reward.v1).")
    parser.add_argument(
        "--address", default=DEFAULT_ADDRESSES.reward, help="host:port; port 0 takes a free one (%(default)s)"
    )
    parser.add_argument("--die-with-stdin", action="store_true", help="exit when stdin is closed")
    options = parser.parse_args(arguments)
    configure_logging(name)
    if not is_loopback(options.address):
        log.warning(
            "listening beyond this machine, in plain text and without tokens", address=options.address
        )
    server = RewardServer(rewards, name=name, version=version, limits=limits)
    status = run_service(
        lambda stop: server.serve(options.address, stop), die_with_stdin=options.die_with_stdin
    )
    sys.exit(status)


__all__ = [
    "Answer",
    "ChatMessage",
    "Completion",
    "Failed",
    "FailureCode",
    "FinishReason",
    "Item",
    "NotApplicable",
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
