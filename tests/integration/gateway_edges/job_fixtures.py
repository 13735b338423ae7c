"""A good job, and how tests create and move it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from edges import Edges
from google.protobuf.duration_pb2 import Duration

from gateway.rewards import Registration
from plaudit.gateway.v1 import training_job_pb2
from plaudit.gateway.v1 import training_job_service_pb2 as pb

GOOD: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "adder",
    "method": "grpo",
    "hyperparameters": {"learning_rate": 1e-3, "max_steps": 40, "lora_rank": 8},
    "rewards": [
        {
            "server": "judge",
            "reward": "exact",
            "name": "right",
            "weight": 0.7,
            "config": {"tag": "answer"},
            "timeout_seconds": 2.5,
        },
        {"server": "judge", "reward": "short"},
    ],
}


def to_message(spec: dict[str, Any]) -> training_job_pb2.TrainingJobSpec:
    """The message that says the same as a REST body."""
    message = training_job_pb2.TrainingJobSpec(
        **{
            name: spec[name] for name in ("base_model", "dataset_id", "output_name", "method") if name in spec
        },
        resume_from=spec.get("resume_from") or "",
        hyperparameters_json=json.dumps(spec.get("hyperparameters", {})),
    )
    for reward in spec.get("rewards", []):
        binding = message.rewards.add(
            **{name: reward[name] for name in ("name", "server", "reward", "weight") if name in reward},
            config_json=json.dumps(reward.get("config", {})),
        )
        if "timeout_seconds" in reward:
            timeout = Duration()
            timeout.FromMilliseconds(round(reward["timeout_seconds"] * 1000))
            binding.timeout.CopyFrom(timeout)
    return message


async def register(edges: Edges) -> None:
    """A reward server that is down: nothing is known of its rewards."""
    await edges.gateway.reward_servers.create("judge", Registration(addresses=("127.0.0.1:1",)))


async def create(edges: Edges, spec: dict[str, Any], **fields: Any) -> training_job_pb2.TrainingJob:
    request = pb.CreateTrainingJobRequest(spec=to_message(spec), **fields)
    return await edges.jobs.CreateTrainingJob(request)


async def change(edges: Edges, job_id: str, **changes: Any) -> None:
    """Moves a job as its trainer would."""
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job_id)
        assert record is not None
        await session.jobs.save(replace(record, job=replace(record.job, **changes)))
