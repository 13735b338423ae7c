"""The built-in rewards, one a file."""

from reward_service.rewards.exact_answer import exact_answer
from reward_service.rewards.format_check import format_check
from reward_service.rewards.length_penalty import length_penalty

BUILTIN_REWARDS = (format_check, exact_answer, length_penalty)
"""Every reward of the built-in server."""

__all__ = ["BUILTIN_REWARDS", "exact_answer", "format_check", "length_penalty"]
