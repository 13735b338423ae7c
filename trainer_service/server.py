"""The trainer service as a whole: its data directory, its runs, its gRPC server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import structlog

from plaudit.rpc import GrpcServer
from plaudit.service import DataDirectory
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from trainer_service.capabilities import find_capabilities
from trainer_service.exports import Exports
from trainer_service.launchers.local import EXPORT_COMMAND, TOKENS_COMMAND, LocalLauncher
from trainer_service.launchers.port import Launcher
from trainer_service.runs import RunRegistry
from trainer_service.servicer import TrainerServicer
from trainer_service.settings import TrainerSettings
from trainer_service.token_counts import TokenCounts
from trainer_service.unsloth import UnslothEnvironment

log = structlog.get_logger(__name__)

_MAX_CONCURRENT_CALLS = 256
_STOP_SECONDS = 5.0


@asynccontextmanager
async def running_service(settings: TrainerSettings, launcher: Launcher) -> AsyncIterator[str]:
    """Serves while the context is open, and yields the address; on leaving it, every run and export is ended.

    Raises FailedPreconditionError where another process uses the data directory, and UnavailableError where
    the address is taken.
    """
    with DataDirectory(settings.state_dir) as state:
        await asyncio.to_thread(lambda: settings.artifacts.mkdir(mode=0o700, parents=True, exist_ok=True))
        registry = await RunRegistry.open(
            state.path,
            launcher,
            max_concurrent_runs=settings.max_concurrent_runs,
            linger_seconds=settings.linger_seconds,
        )
        exports = await Exports.open(state.path / "exports", LocalLauncher(EXPORT_COMMAND))
        token_counts = await TokenCounts.open(state.path / "tokens", LocalLauncher(TOKENS_COMMAND))
        capabilities = await find_capabilities()
        unsloth = UnslothEnvironment(settings.unsloth_python, capabilities.devices)
        servicer = TrainerServicer(
            registry,
            exports,
            token_counts,
            artifact_root=settings.artifacts,
            secrets_dir=settings.secrets.folder,
            capabilities=capabilities,
            unsloth=unsloth,
            version=version("plaudit"),
        )
        server = GrpcServer(
            [pb.DESCRIPTOR.services_by_name["TrainerService"].full_name],
            maximum_concurrent_rpcs=_MAX_CONCURRENT_CALLS,
            security=settings.security,
        )
        pb_grpc.add_TrainerServiceServicer_to_server(servicer, server.server)
        port = await server.start(settings.address)
        log.info("the trainer service listens", port=port, trainer_id=registry.trainer_id)
        try:
            yield f"{settings.address.rpartition(':')[0]}:{port}"
        finally:
            await server.drain()
            # The journals are ended first, so that streams end with the runs' last entries.
            await exports.stop()
            await token_counts.stop()
            await registry.stop()
            await server.stop(_STOP_SECONDS)
            registry.close()


async def serve(settings: TrainerSettings, launcher: Launcher, stop: asyncio.Event) -> None:
    """Serves until `stop` is set.

    Prints one line on stdout once it listens: `{"service": "trainer", "address": "127.0.0.1:7432"}`.
    """
    async with running_service(settings, launcher) as address:
        sys.stdout.write(json.dumps({"service": "trainer", "address": address}) + "\n")
        sys.stdout.flush()
        await stop.wait()
