"""The built-in rewards, one a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from reward_service._reward import Reward
from reward_service.rewards.exact_answer import exact_answer
from reward_service.rewards.format_check import format_check
from reward_service.rewards.frontier_judge import open_frontier_judge
from reward_service.rewards.length_penalty import length_penalty
from reward_service.rewards.math_answer import open_math_answer
from reward_service.rewards.python_function import open_python_function
from reward_service.rewards.repetition_penalty import repetition_penalty
from reward_service.settings import RewardSettings


@asynccontextmanager
async def builtin_rewards(settings: RewardSettings) -> AsyncIterator[Sequence[Reward]]:
    """Every reward of the built-in server; what they hold is open while the context is.

    A reward that holds something (processes, a client of HTTP) is opened here:
    `await stack.enter_async_context(...)`.
    """
    async with AsyncExitStack() as stack:
        math_answer = await stack.enter_async_context(open_math_answer(settings.math))
        judges = await stack.enter_async_context(
            open_frontier_judge(settings.judge, settings.secrets, settings.data_dir / "reward")
        )
        python_function = await stack.enter_async_context(open_python_function(settings.sandbox))
        yield [
            format_check,
            exact_answer,
            math_answer,
            length_penalty,
            repetition_penalty,
            *judges,
            python_function,
        ]


__all__ = [
    "builtin_rewards",
    "exact_answer",
    "format_check",
    "length_penalty",
    "open_frontier_judge",
    "open_math_answer",
    "open_python_function",
    "repetition_penalty",
]
