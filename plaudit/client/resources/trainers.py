"""Trainers that the gateway gives jobs to."""

from __future__ import annotations

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking
from plaudit.client._wire import Wire
from plaudit.gateway.v1 import trainer_registry_service_pb2 as pb
from plaudit.gateway.v1.trainer_registry_service_pb2_grpc import TrainerRegistryServiceStub


class AsyncTrainers:
    """`client.trainers` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        self._stub = TrainerRegistryServiceStub(wire.channel)
        self._wire = wire

    async def list(self) -> list[models.Trainer]:
        """The trainers of the gateway's settings, in their order, each as it answered when last asked."""
        response = await self._wire.call(self._stub.ListTrainers, pb.ListTrainersRequest())
        return [_convert.trainer_from_proto(trainer) for trainer in response.trainers]


class Trainers(Blocking[AsyncTrainers]):
    """`client.trainers`."""

    list = blocking(AsyncTrainers.list)
