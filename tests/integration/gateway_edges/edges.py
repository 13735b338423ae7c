"""The gateway's edges on real ports: gRPC and REST over one domain, with a real store below."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import uvicorn

from gateway.access import Access, AccessPolicy
from gateway.datasets import DatasetConnection, DatasetService, HubReader
from gateway.datasets.token_statistics import PromptTokens
from gateway.domain import Gateway
from gateway.event_hub import EventHub
from gateway.http_protocol import BoundedProtocol
from gateway.jobs.log_lines import JobLog
from gateway.jobs.service import JobService
from gateway.jobs.trainer_questions import TrainerQuestions
from gateway.models.exporter import Exporter
from gateway.models.links import Links
from gateway.models.service import ModelService
from gateway.rescoring.service import RescoreService
from gateway.rest import create_app
from gateway.reward_functions import RewardFunctionService
from gateway.rewards import Registration, RewardServerRegistry
from gateway.servicers import SERVICE_NAMES, AccessInterceptor, add_services
from gateway.store import Store
from plaudit.gateway.v1 import (
    dataset_service_pb2_grpc,
    reward_function_service_pb2_grpc,
    reward_server_service_pb2_grpc,
    training_job_service_pb2_grpc,
)
from plaudit.reward.v1 import reward_service_pb2, reward_service_pb2_grpc
from plaudit.rpc import GrpcServer, open_channel
from plaudit.service import Secrets


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Edges:
    """What a test talks to, and the store below it."""

    gateway: Gateway
    store: Store
    artifact_root: Path
    channel: grpc.aio.Channel
    grpc_address: str
    http_url: str
    http: httpx2.AsyncClient

    @property
    def jobs(self) -> training_job_service_pb2_grpc.TrainingJobServiceAsyncStub:
        return training_job_service_pb2_grpc.TrainingJobServiceStub(self.channel)

    @property
    def datasets(self) -> dataset_service_pb2_grpc.DatasetServiceAsyncStub:
        return dataset_service_pb2_grpc.DatasetServiceStub(self.channel)

    @property
    def reward_functions(self) -> reward_function_service_pb2_grpc.RewardFunctionServiceAsyncStub:
        return reward_function_service_pb2_grpc.RewardFunctionServiceStub(self.channel)

    @property
    def reward_servers(self) -> reward_server_service_pb2_grpc.RewardServerServiceAsyncStub:
        return reward_server_service_pb2_grpc.RewardServerServiceStub(self.channel)


@asynccontextmanager
async def open_edges(
    folder: Path,
    *,
    max_upload_bytes: int = 64 * 1024 * 1024,
    bookmark_seconds: float = 10.0,
    configured: dict[str, list[str]] | None = None,
    secrets: Secrets | None = None,
    check_seconds: float = 10.0,
    dataset_roots: tuple[Path, ...] = (),
    policy: AccessPolicy | None = None,
) -> AsyncIterator[Edges]:
    """Everything of the gateway but the process and its trainers, until the context ends."""
    artifact_root = folder / "artifacts"
    async with Store.open(folder / "gateway.sqlite3") as store:
        datasets = DatasetService(store, artifact_root, max_upload_bytes=max_upload_bytes)
        await datasets.start()
        secrets = secrets or Secrets(folder / "secrets")
        registry = RewardServerRegistry(store, secrets, pause_seconds=check_seconds)
        await registry.start(
            {name: Registration(addresses=tuple(at)) for name, at in (configured or {}).items()}
        )
        events = EventHub(store, await store.newest_event(), bookmark_seconds=bookmark_seconds)
        store.on_commit(events.publish)
        jobs = JobService(store, datasets, registry, artifact_root, on_change=lambda: None)
        rescores = RescoreService(store, datasets, registry, artifact_root, secrets)
        models = ModelService(store, artifact_root, Exporter(store, ()), Links.open(folder))
        access = Access(store, policy or AccessPolicy())
        gateway = Gateway(
            access=access,
            jobs=jobs,
            events=events,
            datasets=datasets,
            reward_servers=registry,
            rescores=rescores,
            models=models,
            reward_functions=RewardFunctionService(store, registry),
            job_log=JobLog(jobs, events),
            dataset_connection=DatasetConnection(datasets, HubReader(secrets), dataset_roots),
            prompt_tokens=PromptTokens(datasets, TrainerQuestions(())),
            trainers=lambda: (),
        )
        server = GrpcServer(SERVICE_NAMES, interceptors=[AccessInterceptor(access)])
        add_services(server.server, gateway)
        port = await server.start("127.0.0.1:0")
        listener = socket.create_server(("127.0.0.1", 0))
        web = _Server(
            uvicorn.Config(
                create_app(gateway),
                http=BoundedProtocol,
                log_level="warning",
                timeout_graceful_shutdown=2,
            )
        )
        serving = asyncio.create_task(web.serve(sockets=[listener]))
        await until(lambda: web.started)
        channel = open_channel(f"127.0.0.1:{port}")
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with (
                access.at_work(),
                httpx2.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as http,
            ):
                yield Edges(gateway, store, artifact_root, channel, f"127.0.0.1:{port}", url, http)
        finally:
            await channel.close()
            events.close()
            web.should_exit = True
            await serving
            await server.stop(0)
            await registry.close()


async def until(condition: Callable[[], object]) -> None:
    """Waits until `condition` holds."""
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass within 30 s")


def jsonl(*rows: dict[str, Any]) -> bytes:
    """Rows as a file."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def details_of(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """Field violations of a failed call, read from its trailers as any client would."""
    from google.rpc import error_details_pb2, status_pb2

    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    found: dict[str, str] = {}
    for detail in status.details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            found.update({v.field: v.description for v in bad.field_violations})
    return found


class DescribedServer(reward_service_pb2_grpc.RewardServiceServicer):
    """A reward server that only describes itself, by a given answer, after a given time."""

    def __init__(self, answer: reward_service_pb2.GetServerInfoResponse, delay: float = 0.0) -> None:
        self.answer = answer
        self.delay = delay
        self.calls = 0

    async def GetServerInfo(self, request: Any, context: Any) -> reward_service_pb2.GetServerInfoResponse:
        self.calls += 1
        await asyncio.sleep(self.delay)
        return self.answer

    async def Score(self, request_iterator: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "only GetServerInfo is served here")

    async def ScoreOnce(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "only GetServerInfo is served here")


@asynccontextmanager
async def described_server(servicer: DescribedServer) -> AsyncIterator[str]:
    """Serves `servicer`; its address."""
    server = grpc.aio.server()
    reward_service_pb2_grpc.add_RewardServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
