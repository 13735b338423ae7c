"""Runs the services of one machine as processes: starts them, restarts what dies, and ends them all.

A service is started with the end of its stdin as its lifeline: when this process is gone, however it ended,
every service sees it and stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import logging.handlers
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from plaudit.errors import UnavailableError
from plaudit.service._lifecycle import unusable_folder
from plaudit.service._logging import get_logger
from plaudit.service._private_files import private_folder, private_opener

log = get_logger(__name__)

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 15.0
_FIRST_BACKOFF_SECONDS: Final = 0.5
_LONGEST_BACKOFF_SECONDS: Final = 10.0
_HEALTHY_SECONDS: Final = 30.0
"""A service that ran for this long starts again without the backoff that earlier deaths have built up."""
_LOG_BYTES: Final = 10 * 1024 * 1024
_LOG_FILES: Final = 3
_TAIL_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class ServiceCommand:
    """How a service is started: `python -m {module}` with options and variables of its own.

    `address_options` maps the names of its announced addresses to its command-line options, so that a service
    that took free ports gets the same ones again when it is restarted. An address that is not among
    `addresses` is the service's own setting.
    """

    name: str
    module: str
    address_options: Mapping[str, str]
    addresses: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Keeps services running until `stop`. Logs go to `{log_dir}/{name}.log`, rotated."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._services: list[_Service] = []

    async def start(self, command: ServiceCommand) -> Mapping[str, str]:
        """Starts a service; returns where it listens, or raises UnavailableError where it does not start."""
        service = _Service(command, self._log_dir)
        self._services.append(service)
        await service.start()
        service.watcher = asyncio.create_task(service.keep_alive(), name=f"keep {command.name} alive")
        return service.addresses

    async def stop(self) -> None:
        """Ends the services, the last that was started first."""
        for service in reversed(self._services):
            await service.stop()
        self._services.clear()


class _Service:
    def __init__(self, command: ServiceCommand, log_dir: Path) -> None:
        self.command = command
        self.addresses: dict[str, str] = dict(command.addresses)
        self.watcher: asyncio.Task[None] | None = None
        self._log_dir = log_dir
        self._tail: list[str] = []
        self._process: asyncio.subprocess.Process | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._log = _open_log(log_dir / f"{command.name}.log", command.name)

    async def start(self) -> None:
        """Starts the process and waits until it says where it listens."""
        self._tail.clear()
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.command.module,
            "--die-with-stdin",
            *(
                part
                for name, option in self.command.address_options.items()
                if name in self.addresses
                for part in (option, self.addresses[name])
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.command.environment},
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(self._pump(process.stderr))
        self._pumps = [errors]
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
            announced = json.loads(line)
        except (TimeoutError, ValueError):
            await self._end()
            await errors
            raise UnavailableError(
                f"the {self.command.name} service did not start; its last lines:\n"
                + "\n".join(f"  {line}" for line in self._tail)
            ) from None
        self.addresses.update({name: announced[name] for name in self.command.address_options})
        self._pumps = [errors, asyncio.create_task(self._pump(process.stdout))]

    async def keep_alive(self) -> None:
        """Starts the process again whenever it has died, with growing pauses where it dies at once."""
        backoff = _FIRST_BACKOFF_SECONDS
        while True:
            assert self._process is not None
            began = time.monotonic()
            status = await self._process.wait()
            if time.monotonic() - began > _HEALTHY_SECONDS:
                backoff = _FIRST_BACKOFF_SECONDS
            log.warning(
                "a service died", service=self.command.name, status=status, restart_in_seconds=backoff
            )
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, _LONGEST_BACKOFF_SECONDS)
            try:
                await self.start()
            except UnavailableError as error:
                log.error("a service could not be restarted", service=self.command.name, reason=error.message)

    async def stop(self) -> None:
        """Ends the process: asks it to drain, then insists."""
        if self.watcher is not None:
            self.watcher.cancel()
            await asyncio.gather(self.watcher, return_exceptions=True)
        await self._end()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for handler in list(self._log.handlers):
            self._log.removeHandler(handler)
            handler.close()

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            log.warning("a service did not drain in time and is killed", service=self.command.name)
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def _pump(self, stream: asyncio.StreamReader) -> None:
        """Carries lines of a stream to the log. A line beyond the reader's limit is carried in parts."""
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                line = await stream.read(65_536)
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._log.info(text)
            self._tail = [*self._tail[-(_TAIL_LINES - 1) :], text]


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # Its own send_signal would take the status of a process that has just ended away from asyncio's watcher.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """A rotated log that only its user can read."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=private_opener)


def _open_log(path: Path, name: str) -> logging.Logger:
    logger = logging.Logger(f"plaudit.supervised.{name}")
    try:
        private_folder(path.parent)
        handler = _PrivateLog(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    except OSError as error:
        raise unusable_folder(path.parent, error) from None
    logger.addHandler(handler)
    return logger
