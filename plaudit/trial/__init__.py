"""Trying a reward function before a job trusts it."""

from plaudit.trial._findings import Finding
from plaudit.trial._results import RewardTrial, TrialSummary, TriedRow
from plaudit.trial._running import try_reward, try_reward_async

__all__ = ["Finding", "RewardTrial", "TrialSummary", "TriedRow", "try_reward", "try_reward_async"]
