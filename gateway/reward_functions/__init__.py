"""Python functions that score, uploaded once and named by jobs."""

from gateway.reward_functions.service import FORMATS, RewardFunctionService

__all__ = ["FORMATS", "RewardFunctionService"]
