"""Reward servers that jobs may name: registered, asked what they offer, and their configurations checked."""

from gateway.rewards.config_schema import config_violations
from gateway.rewards.registry import LiveRewardServer, RewardServerRegistry

__all__ = ["LiveRewardServer", "RewardServerRegistry", "config_violations"]
