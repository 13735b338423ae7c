"""The gateway's gRPC servicers: they convert, call the domain, and convert back."""

from __future__ import annotations

from typing import Final

import grpc.aio

from gateway.domain import Gateway
from gateway.servicers.datasets import Datasets
from gateway.servicers.guard import AccessInterceptor
from gateway.servicers.models import Models
from gateway.servicers.rescores import Rescores
from gateway.servicers.reward_functions import RewardFunctions
from gateway.servicers.reward_servers import RewardServers
from gateway.servicers.tokens import Tokens
from gateway.servicers.trainers import Trainers
from gateway.servicers.training_jobs import TrainingJobs
from plaudit.gateway.v1 import (
    dataset_service_pb2_grpc,
    model_service_pb2_grpc,
    rescore_service_pb2_grpc,
    reward_function_service_pb2_grpc,
    reward_server_service_pb2_grpc,
    token_service_pb2_grpc,
    trainer_registry_service_pb2_grpc,
    training_job_service_pb2_grpc,
)

SERVICE_NAMES: Final = (
    "plaudit.gateway.v1.TrainingJobService",
    "plaudit.gateway.v1.DatasetService",
    "plaudit.gateway.v1.RewardServerService",
    "plaudit.gateway.v1.RescoreService",
    "plaudit.gateway.v1.ModelService",
    "plaudit.gateway.v1.RewardFunctionService",
    "plaudit.gateway.v1.TokenService",
    "plaudit.gateway.v1.TrainerRegistryService",
)
"""Full names, for health and reflection."""


def add_services(server: grpc.aio.Server, gateway: Gateway) -> None:
    """Registers every service of plaudit.gateway.v1 on `server`, which has not started."""
    training_job_service_pb2_grpc.add_TrainingJobServiceServicer_to_server(TrainingJobs(gateway), server)
    dataset_service_pb2_grpc.add_DatasetServiceServicer_to_server(Datasets(gateway), server)
    reward_server_service_pb2_grpc.add_RewardServerServiceServicer_to_server(RewardServers(gateway), server)
    rescore_service_pb2_grpc.add_RescoreServiceServicer_to_server(Rescores(gateway), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(gateway), server)
    token_service_pb2_grpc.add_TokenServiceServicer_to_server(Tokens(gateway), server)
    reward_function_service_pb2_grpc.add_RewardFunctionServiceServicer_to_server(
        RewardFunctions(gateway), server
    )
    trainer_registry_service_pb2_grpc.add_TrainerRegistryServiceServicer_to_server(Trainers(gateway), server)


__all__ = ["SERVICE_NAMES", "AccessInterceptor", "add_services"]
