"""Reward servers that jobs may name: registered, asked what they offer, and their configurations checked."""

from gateway.rewards.config_schema import config_violations
from gateway.rewards.registration import ConfiguredServer, Registration, registration_refusal
from gateway.rewards.registry import LiveRewardServer, RewardServerRegistry
from gateway.rewards.replicas import ReplicaHealth, ReplicaState

__all__ = [
    "ConfiguredServer",
    "LiveRewardServer",
    "Registration",
    "ReplicaHealth",
    "ReplicaState",
    "RewardServerRegistry",
    "config_violations",
    "registration_refusal",
]
