"""The built-in reward server: every reward of `reward_service.rewards`."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from reward_service.kit import RewardServer
from reward_service.rewards import builtin_rewards
from reward_service.settings import RewardSettings


async def serve_builtin(settings: RewardSettings, stop: asyncio.Event) -> None:
    """Serves until `stop` is set."""
    async with builtin_rewards(settings) as rewards:
        server = RewardServer(
            rewards, name="plaudit-builtin", version=version("plaudit"), limits=settings.limits
        )
        await server.serve(settings.address, stop, settings.drain_grace_seconds, security=settings.security)
