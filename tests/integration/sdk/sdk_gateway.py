"""A job, and a gateway that has no trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stack import Stack

JOB: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "sdk",
    "hyperparameters": {"max_steps": 2, "global_batch_size": 16},
    "rewards": [{"server": "builtin", "reward": "exact_answer"}],
}


def start_without_trainer(stack: Stack, environment: Mapping[str, str]) -> None:
    """Starts reward server and gateway, the gateway with these settings besides."""
    stack.reward.start()
    stack.gateway_environment.update(
        {
            "PLAUDIT_GATEWAY_TRAINERS": "[]",
            "PLAUDIT_GATEWAY_REWARD_SERVERS": f'{{"builtin": ["{stack.reward.addresses["address"]}"]}}',
            **environment,
        }
    )
    stack.gateway.start()
