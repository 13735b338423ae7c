"""The gateway as a whole: its store, its domain, and the two ports, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Final

import structlog
import uvicorn

from gateway.datasets import DatasetService
from gateway.domain import Gateway
from gateway.events import EventHub
from gateway.jobs.reconciler import Reconciler
from gateway.jobs.service import JobService
from gateway.rest import create_app
from gateway.rewards import RewardServerRegistry
from gateway.servicers import SERVICE_NAMES, add_services
from gateway.settings import GatewaySettings
from gateway.store import Store
from plaudit.errors import InternalError, UnavailableError
from plaudit.rpc import GrpcServer
from plaudit.service import DataDirectory

log = structlog.get_logger(__name__)

STORE_FILE: Final = "gateway.sqlite3"

_MAX_CONCURRENT_CALLS: Final = 4096


async def serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Serves until `stop` is set, then drains: streams end, and their readers come back with their cursors.

    Prints one line on stdout once it listens: `{"service": "gateway", "grpc_address": "127.0.0.1:7430",
    "http_address": "127.0.0.1:7431"}`. Raises FailedPreconditionError where another process uses the data
    directory, and UnavailableError where an address is taken.
    """
    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_gateway(settings))
        http_socket = stack.enter_context(_listening_socket(settings.http_address))
        http = _HttpServer(
            uvicorn.Config(
                create_app(gateway),
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
            )
        )
        grpc = GrpcServer(SERVICE_NAMES, maximum_concurrent_rpcs=_MAX_CONCURRENT_CALLS)
        add_services(grpc.server, gateway)
        grpc_port = await grpc.start(settings.grpc_address)
        http_serving = asyncio.create_task(http.serve(sockets=[http_socket]))
        addresses = {
            "grpc_address": f"{settings.grpc_address.rpartition(':')[0]}:{grpc_port}",
            "http_address": f"{settings.http_address.rpartition(':')[0]}:{http_socket.getsockname()[1]}",
        }
        log.info("the gateway listens", **addresses)
        sys.stdout.write(json.dumps({"service": "gateway", **addresses}) + "\n")
        sys.stdout.flush()
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, http_serving], return_when=asyncio.FIRST_COMPLETED)
        failed = not stopping.done()
        stopping.cancel()
        log.info("the gateway drains")
        await grpc.drain()
        gateway.events.close()
        http.should_exit = True
        await asyncio.gather(http_serving, grpc.stop(settings.drain_seconds))
        if failed:
            raise InternalError("the REST server ended by itself; the log says why")


@contextlib.asynccontextmanager
async def open_gateway(settings: GatewaySettings) -> AsyncIterator[Gateway]:
    """The domain over its store, with trainers being spoken to, until the context ends. Nothing listens
    yet.
    """
    with DataDirectory(settings.state_dir) as state:
        async with Store.open(state.path / STORE_FILE) as store:
            events = EventHub(store, await store.newest_event())
            store.on_commit(events.publish)
            datasets = DatasetService(store, settings.artifacts, max_upload_bytes=settings.max_upload_bytes)
            await datasets.start()
            reward_servers = RewardServerRegistry(store)
            await reward_servers.start(settings.reward_servers)
            reconciler = Reconciler(
                store,
                settings.artifacts,
                settings.trainers,
                poll_seconds=settings.poll_seconds,
                overdue_seconds=settings.trainer_overdue_after_seconds,
                lost_seconds=settings.trainer_lost_after_seconds,
            )
            jobs = JobService(store, datasets, reward_servers, settings.artifacts, on_change=reconciler.wake)
            reconciling = asyncio.create_task(reconciler.run())
            try:
                yield Gateway(jobs, events, datasets, reward_servers)
            finally:
                events.close()
                reconciling.cancel()
                await asyncio.wait([reconciling])


class _HttpServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: the service owns them, and uvicorn would raise SIGTERM again after our
        drain.
        """
        yield


@contextlib.contextmanager
def _listening_socket(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        listening = socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {address} ({error.strerror}); stop what listens there, or choose another port "
            "(0 takes a free one)",
            reason="ADDRESS_IN_USE",
        ) from None
    with listening:
        yield listening
