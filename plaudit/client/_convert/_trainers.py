"""Trainers of a gateway."""

from __future__ import annotations

from typing import Final

from plaudit.client import models
from plaudit.client._convert._reading import reads_answer
from plaudit.gateway.v1 import trainer_registry_service_pb2 as pb

_STATES: Final = {
    pb.TRAINER_STATE_NOT_ASKED: models.TrainerState.NOT_ASKED,
    pb.TRAINER_STATE_ANSWERS: models.TrainerState.ANSWERS,
    pb.TRAINER_STATE_AWAY: models.TrainerState.AWAY,
}


@reads_answer
def trainer_from_proto(message: pb.RegisteredTrainer) -> models.Trainer:
    """A trainer as the gateway found it."""
    return models.Trainer(
        address=message.address,
        state=_STATES[message.state],
        problem=message.problem,
        version=message.version,
        max_concurrent_runs=message.max_concurrent_runs,
    )
