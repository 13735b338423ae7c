"""plaudit.gateway.v1.TrainerRegistryService."""

from __future__ import annotations

from typing import Any

import grpc.aio

from gateway.domain import Gateway
from gateway.jobs.scheduler import TrainerPlaces
from plaudit.gateway.v1 import trainer_registry_service_pb2 as pb
from plaudit.gateway.v1.trainer_registry_service_pb2_grpc import TrainerRegistryServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class Trainers(TrainerRegistryServiceServicer):
    """Asks the domain, and converts."""

    def __init__(self, gateway: Gateway) -> None:
        self._trainers = gateway.trainers

    async def ListTrainers(
        self, request: pb.ListTrainersRequest, context: Context
    ) -> pb.ListTrainersResponse:
        return pb.ListTrainersResponse(trainers=[_to_proto(trainer) for trainer in self._trainers()])


def _to_proto(trainer: TrainerPlaces) -> pb.RegisteredTrainer:
    if trainer.trainer_id is not None:
        state = pb.TRAINER_STATE_ANSWERS
    elif trainer.problem:
        state = pb.TRAINER_STATE_AWAY
    else:
        state = pb.TRAINER_STATE_NOT_ASKED
    return pb.RegisteredTrainer(
        address=trainer.address,
        state=state,
        problem=trainer.problem,
        version=trainer.version,
        max_concurrent_runs=trainer.places,
    )
