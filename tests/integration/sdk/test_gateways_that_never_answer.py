"""A peer that is there and says nothing costs every caller its deadline, and no more."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from gateway.jobs import trainer_client
from gateway.jobs.trainer_client import TrainerClient
from plaudit import AsyncClient, Client
from plaudit.errors import DeadlineExceededError

DEADLINE_SECONDS = 0.5


class _NeverAnswers(grpc.GenericRpcHandler):
    """Takes every call and keeps it."""

    def __init__(self, over: threading.Event) -> None:
        self._over = over
        self.calls: list[str] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        self.calls.append(handler_call_details.method)

        def wait(request: bytes, context: grpc.ServicerContext) -> bytes:
            self._over.wait()
            return b""

        return grpc.unary_unary_rpc_method_handler(wait)


@pytest.fixture
def mute_server() -> Iterator[str]:
    """Speaks gRPC, answers pings, and never a call."""
    over = threading.Event()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=8),
        handlers=[_NeverAnswers(over)],
        options=[("grpc.so_reuseport", 0)],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    over.set()
    server.stop(None).wait(10)


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(params=["mute_server", "black_hole"])
def nobody(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def test_the_blocking_client_gives_up_at_its_deadline(nobody: str) -> None:
    told = rf"the gateway at {nobody} did not answer in time"
    with Client(nobody, timeout_seconds=DEADLINE_SECONDS, retry_seconds=30.0) as client:
        with pytest.raises(DeadlineExceededError, match=told):
            client.training_jobs.get("job_1")
        with pytest.raises(DeadlineExceededError, match=told):
            list(client.training_jobs.list())


async def test_the_asyncio_client_gives_up_at_its_deadline(nobody: str) -> None:
    async with AsyncClient(nobody, timeout_seconds=DEADLINE_SECONDS, retry_seconds=30.0) as client:
        with pytest.raises(DeadlineExceededError, match=rf"the gateway at {nobody} did not answer in time"):
            await client.training_jobs.get("job_1")


async def test_the_gateway_gives_up_on_trainers(
    mute_server: str, black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once: the deadline of a usual call is 5 seconds."""
    for name in ("_START_SECONDS", "_CANCEL_SECONDS", "_DELETE_SECONDS"):
        monkeypatch.setattr(trainer_client, name, DEADLINE_SECONDS)
    trainers = [TrainerClient(address) for address in (mute_server, black_hole)]
    try:
        ends = await asyncio.gather(
            *(
                call
                for trainer in trainers
                for call in (trainer.get_info(), trainer.list_runs(), trainer.cancel_run("a"))
            ),
            return_exceptions=True,
        )
        assert all(isinstance(end, DeadlineExceededError) for end in ends), ends
        for trainer, own in zip(trainers, (ends[:3], ends[3:]), strict=True):
            assert all(
                str(end).startswith(f"trainer {trainer.address} did not answer in time") for end in own
            )
    finally:
        for trainer in trainers:
            await trainer.close()
