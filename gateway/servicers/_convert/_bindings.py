"""The rewards of a job, and of a rescore."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration

from gateway.servicers._convert._values import NANOS, parsed_object
from plaudit.errors import FieldViolation
from plaudit.gateway.v1 import training_job_pb2
from plaudit.types.jobs import RewardBinding


def bindings_to_data(
    bindings: Sequence[training_job_pb2.RewardBinding], violations: list[FieldViolation]
) -> list[dict[str, Any]]:
    """Rewards as JSON-like data, unchecked; what is wrong with a JSON text is added to `violations`."""
    return [
        _binding_to_data(binding, parsed_object(binding.config_json, f"rewards[{index}].config", violations))
        for index, binding in enumerate(bindings)
    ]


def binding_to_proto(binding: RewardBinding) -> training_job_pb2.RewardBinding:
    """A reward, every default filled in."""
    timeout, retry_time = Duration(), Duration()
    timeout.FromNanoseconds(round(binding.timeout_seconds * NANOS))
    retry_time.FromNanoseconds(round(binding.retry_seconds * NANOS))
    return training_job_pb2.RewardBinding(
        name=binding.name,
        server=binding.server,
        reward=binding.reward,
        weight=binding.weight,
        config_json=json.dumps(binding.config),
        timeout=timeout,
        max_attempts=binding.max_attempts,
        retry_time=retry_time,
    )


def as_written(number: float) -> int | float:
    """2 for 2.0: an error shows the number as its author wrote it, in JSON as here."""
    return int(number) if number.is_integer() else number


def _binding_to_data(binding: training_job_pb2.RewardBinding, config: dict[str, Any]) -> dict[str, Any]:
    given = {"name": binding.name, "server": binding.server, "reward": binding.reward}
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    if binding.HasField("weight"):
        data["weight"] = as_written(binding.weight)
    if binding.HasField("timeout"):
        data["timeout_seconds"] = _seconds(binding.timeout)
    if binding.HasField("max_attempts"):
        data["max_attempts"] = binding.max_attempts
    if binding.HasField("retry_time"):
        data["retry_seconds"] = _seconds(binding.retry_time)
    return {**data, "config": config}


def _seconds(duration: Duration) -> int | float:
    return as_written(duration.seconds + duration.nanos / NANOS)
