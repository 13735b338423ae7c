"""The gateway's gRPC servicers: they convert, call the domain, and convert back."""

from __future__ import annotations

from typing import Final

import grpc.aio

from gateway.domain import Gateway
from gateway.servicers.datasets import Datasets
from gateway.servicers.reward_servers import RewardServers
from gateway.servicers.training_jobs import TrainingJobs
from plaudit.gateway.v1 import (
    dataset_service_pb2_grpc,
    reward_server_service_pb2_grpc,
    training_job_service_pb2_grpc,
)

SERVICE_NAMES: Final = (
    "plaudit.gateway.v1.TrainingJobService",
    "plaudit.gateway.v1.DatasetService",
    "plaudit.gateway.v1.RewardServerService",
)
"""Full names, for health and reflection."""


def add_services(server: grpc.aio.Server, gateway: Gateway) -> None:
    """Registers every service of plaudit.gateway.v1 on `server`, which has not started."""
    training_job_service_pb2_grpc.add_TrainingJobServiceServicer_to_server(TrainingJobs(gateway), server)
    dataset_service_pb2_grpc.add_DatasetServiceServicer_to_server(Datasets(gateway), server)
    reward_server_service_pb2_grpc.add_RewardServerServiceServicer_to_server(RewardServers(gateway), server)


__all__ = ["SERVICE_NAMES", "add_services"]
