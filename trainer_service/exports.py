"""Exports that are asked for: one process at a time, which dies with the service."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from plaudit.errors import FailedPreconditionError, ResourceExhaustedError, UnavailableError
from plaudit.types.statuses import ErrorCode
from trainer_service.export_directory import (
    ExportRequest,
    ExportResult,
    make_export_directory,
    read_result,
)
from trainer_service.exported import read_exported
from trainer_service.journal import RunError
from trainer_service.launchers.port import Launcher, LaunchError, ProcessExit, RunProcess

log = structlog.get_logger(__name__)

LONGEST_EXPORT_SECONDS: Final = 3600.0

_BUSY_RETRY_SECONDS: Final = 2.0
_FAILURES_KEPT: Final = 256
_STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """What has become of an export. `result` None: it is under way; `detail` says how, for people."""

    result: ExportResult | None
    detail: str = ""


@dataclass(slots=True)
class _Running:
    request: ExportRequest
    folder: Path
    process: RunProcess
    task: asyncio.Task[None] | None = None
    detail: str = "loading the training libraries"


class Exports:
    """Starts exports and remembers how they ended. Made by `open`; used from one event loop.

    A model that is complete is found in its folder, also by another service; failures are forgotten with the
    service, and the export is then tried again.
    """

    def __init__(self, folder: Path, launcher: Launcher) -> None:
        self._folder = folder
        self._launcher = launcher
        self._running: _Running | None = None
        self._failures: OrderedDict[str, RunError] = OrderedDict()
        self._starting = asyncio.Lock()
        self._closing = False

    @classmethod
    async def open(cls, folder: Path, launcher: Launcher) -> Exports:
        """Clears `folder` of what an earlier service has left."""
        for leftover in await asyncio.to_thread(lambda: list(folder.iterdir()) if folder.is_dir() else []):
            await launcher.kill_leftovers(leftover)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return cls(folder, launcher)

    async def ask(self, request: ExportRequest) -> ExportProgress:
        """Starts an export, or says what has become of it where it was started already.

        Raises FailedPreconditionError (TARGET_URI_REUSED) and ResourceExhaustedError (EXPORT_BUSY).
        """
        async with self._starting:
            running = self._running
            if running is not None and running.request.target_uri == request.target_uri:
                if running.request != request:
                    raise FailedPreconditionError(
                        f"another export to {request.target_uri} is under way; give this one a target_uri of "
                        "its own",
                        reason="TARGET_URI_REUSED",
                    )
                return ExportProgress(None, running.detail)
            if (failure := self._failures.get(request.target_uri)) is not None:
                return ExportProgress(ExportResult(error=failure))
            done = await asyncio.to_thread(read_exported, request.artifact_root, request.target_uri)
            if done is not None:
                return ExportProgress(ExportResult(model=done))
            if self._closing:
                raise UnavailableError("the trainer service is stopping; ask another trainer")
            if running is not None:
                raise ResourceExhaustedError(
                    f"an export to {running.request.target_uri} is under way; ask again when it is done",
                    reason="EXPORT_BUSY",
                    retry_after=_BUSY_RETRY_SECONDS,
                )
            self._running = await self._start(request)
            return ExportProgress(None, self._running.detail)

    async def stop(self) -> None:
        """Kills what is under way, and takes no more."""
        self._closing = True
        async with self._starting:
            running = self._running
        if running is not None and running.task is not None:
            running.process.kill()
            await asyncio.wait({running.task}, timeout=_STOP_SECONDS)

    async def _start(self, request: ExportRequest) -> _Running:
        folder = self._folder / hashlib.sha256(request.target_uri.encode()).hexdigest()[:32]
        try:
            await asyncio.to_thread(make_export_directory, folder, request)
            process = await self._launcher.launch(folder)
        except (OSError, LaunchError) as error:
            raise UnavailableError(f"the export cannot be started: {error}", retry_after=30.0) from error
        running = _Running(request, folder, process)
        running.task = asyncio.create_task(self._supervise(running), name=f"export {request.target_uri}")
        log.info("an export was started", target_uri=request.target_uri)
        return running

    async def _supervise(self, running: _Running) -> None:
        reports = asyncio.create_task(_follow(running))
        ending = asyncio.create_task(running.process.wait())
        if not (await asyncio.wait({ending}, timeout=LONGEST_EXPORT_SECONDS))[0]:
            log.error("an export takes too long and is killed", target_uri=running.request.target_uri)
            running.process.kill()
        ended = await ending
        reports.cancel()
        result = await asyncio.to_thread(read_result, running.folder)
        error = result.error if result is not None else _death_of(ended)
        if error is not None and not self._closing:
            self._failures[running.request.target_uri] = error
            while len(self._failures) > _FAILURES_KEPT:
                self._failures.popitem(last=False)
        await asyncio.to_thread(shutil.rmtree, running.folder, ignore_errors=True)
        log.info("an export ended", target_uri=running.request.target_uri, status=ended.status)
        self._running = None


async def _follow(running: _Running) -> None:
    async for report in running.process.reports():
        running.detail = report.status_detail or running.detail


def _death_of(ended: ProcessExit) -> RunError:
    output = f"; its last output was:\n{ended.output}" if ended.output else ""
    if ended.out_of_memory:
        return RunError(
            ErrorCode.OUT_OF_MEMORY,
            "the kernel killed the export because memory ran out; export it on a trainer with more memory",
        )
    how = f"signal {-ended.status}" if ended.status < 0 else f"status {ended.status}"
    return RunError(ErrorCode.PROCESS_DIED, f"the export's process ended with {how}{output}")
