"""The gateway as a whole: its store, its domain, and the two ports, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Final

import structlog
import uvicorn

from gateway.access import Access
from gateway.datasets import DatasetConnection, DatasetService, HubReader
from gateway.datasets.token_statistics import PromptTokens
from gateway.domain import Gateway
from gateway.event_hub import EventHub
from gateway.http_protocol import BoundedProtocol
from gateway.jobs.heartbeats import HeartbeatWatch
from gateway.jobs.log_lines import JobLog
from gateway.jobs.reconciler import Reconciler
from gateway.jobs.service import JobService
from gateway.jobs.trainer_access import doors_of
from gateway.jobs.trainer_questions import TrainerQuestions
from gateway.models.exporter import Exporter
from gateway.models.links import Links
from gateway.models.service import ModelService
from gateway.rescoring.service import RescoreService
from gateway.rest import Hosts, create_app
from gateway.reward_functions import RewardFunctionService
from gateway.rewards import RewardServerRegistry
from gateway.servicers import SERVICE_NAMES, AccessInterceptor, add_services
from gateway.settings import GatewaySettings
from gateway.store import STORE_FILE, Store
from plaudit.errors import InternalError, UnavailableError
from plaudit.rpc import GrpcServer
from plaudit.service import DataDirectory
from plaudit.types.addresses import is_loopback

log = structlog.get_logger(__name__)

_MAX_CONCURRENT_CALLS: Final = 4096
_COLLECT_AFTER: Final = 20_000
"""Objects more than were dropped: Python's 700 takes an eighth of the time of deliveries to many readers."""


async def serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Serves until `stop` is set, then drains: streams end, and their readers come back with their cursors.

    Prints one line on stdout once it listens: `{"service": "gateway", "grpc_address": "127.0.0.1:7430",
    "http_address": "127.0.0.1:7431"}`. Raises FailedPreconditionError where another process uses the data
    directory, and UnavailableError where an address is taken.
    """
    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_gateway(settings))
        http_socket = stack.enter_context(_listening_socket(settings.http_address))
        # First, as it checks the files that both ports use.
        grpc = GrpcServer(
            SERVICE_NAMES,
            interceptors=[AccessInterceptor(gateway.access)],
            maximum_concurrent_rpcs=_MAX_CONCURRENT_CALLS,
            security=settings.security,
        )
        http = _HttpServer(_http_config(settings, gateway))
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
        # What is loaded by now stays; to look at it in every full collection would hold up every reader.
        gc.freeze()
        # A thousand readers make and drop objects by the thousand, hardly one of them in a cycle.
        gc.set_threshold(_COLLECT_AFTER, 20, 20)
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
            reward_servers = RewardServerRegistry(
                store, settings.secrets, pause_seconds=settings.reward_server_check_seconds
            )
            await reward_servers.start(settings.reward_servers)
            trainers = [trainer.address for trainer in settings.trainers]
            door = doors_of(settings.trainers, settings.secrets)
            reconciler = Reconciler(
                store,
                settings.artifacts,
                trainers,
                door=door,
                poll_seconds=settings.poll_seconds,
                overdue_seconds=settings.trainer_overdue_after_seconds,
                lost_seconds=settings.trainer_lost_after_seconds,
            )
            questions = TrainerQuestions(trainers, door=door)
            jobs = JobService(
                store,
                datasets,
                reward_servers,
                settings.artifacts,
                on_change=reconciler.wake,
                open_jobs_per_token=settings.limits.open_jobs,
                job_checks=questions,
            )
            await jobs.finish_deletions()
            rescores = RescoreService(store, datasets, reward_servers, settings.artifacts, settings.secrets)
            exporter = Exporter(store, trainers, door=door)
            links = await asyncio.to_thread(Links.open, state.path)
            models = ModelService(store, settings.artifacts, exporter, links)
            access = Access(store, settings.access)
            heartbeats = HeartbeatWatch(
                store,
                on_change=reconciler.wake,
                timeout_seconds=settings.heartbeat_timeout_seconds,
            )
            working = [asyncio.create_task(reconciler.run()), asyncio.create_task(heartbeats.run())]
            try:
                async with (
                    access.at_work(),
                    rescores.at_work(),
                    exporter.at_work(),
                    questions.at_work(),
                ):
                    yield Gateway(
                        jobs=jobs,
                        events=events,
                        datasets=datasets,
                        reward_servers=reward_servers,
                        rescores=rescores,
                        models=models,
                        reward_functions=RewardFunctionService(store, reward_servers),
                        job_log=JobLog(jobs, events),
                        dataset_connection=DatasetConnection(
                            datasets, HubReader(settings.secrets), settings.dataset_roots
                        ),
                        prompt_tokens=PromptTokens(datasets, questions),
                        access=access,
                        trainers=reconciler.trainers,
                    )
            finally:
                events.close()
                for task in working:
                    task.cancel()
                await asyncio.wait(working)
                await reward_servers.close()


def _http_config(settings: GatewaySettings, gateway: Gateway) -> uvicorn.Config:
    security = settings.security
    hosts = Hosts(
        frozenset(settings.allowed_hosts),
        by_address=not is_loopback(settings.http_address),
        behind_proxy=security.plaintext,
    )
    return uvicorn.Config(
        create_app(gateway, hosts),
        http=BoundedProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        # Who calls is what a proxy on this machine says, where there is one; else anybody could say it.
        proxy_headers=security.plaintext,
        ssl_certfile=security.tls_cert,
        ssl_keyfile=security.tls_key,
        ssl_ca_certs=str(security.client_ca) if security.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if security.client_ca else ssl.CERT_NONE,
    )


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
        # Connections inherit it; asyncio sets it only for sockets that it has made itself. Without, what
        # follows the head of an answer waits up to 40 ms for the other side's acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listening
