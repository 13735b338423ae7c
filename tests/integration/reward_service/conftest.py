"""Real reward servers on loopback, and channels to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import grpc.aio
import pytest

from plaudit.rpc import open_channel
from reward_service import Reward, RewardServer, ServerLimits

Serve = Callable[..., Awaitable[grpc.aio.Channel]]


class Servers:
    """Starts servers, and remembers the last one."""

    def __init__(self) -> None:
        self.running: list[RewardServer] = []
        self.channels: list[grpc.aio.Channel] = []
        self.address = ""

    @property
    def last(self) -> RewardServer:
        return self.running[-1]

    async def __call__(self, *rewards: Reward, **limits: float) -> grpc.aio.Channel:
        """Starts a server of these rewards and returns a channel to it."""
        server = RewardServer(rewards, name="tests", version="1.2.3", limits=ServerLimits(**limits))  # type: ignore[arg-type]
        port = await server.start("127.0.0.1:0")
        self.running.append(server)
        self.address = f"127.0.0.1:{port}"
        return self.channel()

    def channel(self) -> grpc.aio.Channel:
        """Another channel to the last server."""
        self.channels.append(open_channel(self.address))
        return self.channels[-1]

    async def close(self, kept: Sequence[RewardServer] = ()) -> None:
        for channel in self.channels:
            await channel.close()
        for server in self.running:
            if server not in kept:
                await server.stop(0.0)


@pytest.fixture
async def serve() -> AsyncIterator[Servers]:
    servers = Servers()
    yield servers
    await servers.close()
