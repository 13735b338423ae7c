"""One worker: a process that reads a request a line and answers it with two, "started" and the reply."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Message: TypeAlias = Mapping[str, Any]

MAX_REPLY_BYTES: Final = 64 * 1024
_DYING_SECONDS: Final = 1.0
_ENVIRONMENT: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TZ")


class WorkerTimeoutError(Exception):
    """The worker did not answer in time, and was killed."""


class WorkerDiedError(Exception):
    """The worker ended while it worked on the request."""


class NotStartedError(Exception):
    """The worker was gone before it began with the request, which another one may take."""


@dataclass(frozen=True, slots=True)
class Canary:
    """A request whose right reply is known; a worker that replies otherwise takes no other request.

    `reply` names what the reply must hold; it may hold more.
    """

    request: Message
    reply: Message


class Worker:
    """A process of its own session and process group, so that it is killed with whatever it started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str]) -> Worker:
        """Starts the program of `command`: executed anew, never forked, so that it shares nothing with gRPC.

        Its environment is empty but for where libraries and languages are found.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            cwd="/",
            limit=MAX_REPLY_BYTES,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is not known to have ended."""
        return self._process.returncode is None

    async def ask(self, request: Message, timeout: float) -> Message:
        """The reply to `request`, within `timeout` seconds.

        Raises WorkerTimeoutError, WorkerDiedError or NotStartedError; after that the worker is dead.
        """
        try:
            return await self._converse(request, timeout)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends it with all that it started, now."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Waits until it is gone."""
        await self._process.wait()

    async def _converse(self, request: Message, timeout: float) -> Message:
        stdin = self._process.stdin
        assert stdin is not None
        started = False
        try:
            async with asyncio.timeout(timeout):
                stdin.write(json.dumps(request).encode("ascii") + b"\n")
                await stdin.drain()
                await self._read()  # that it has started
                started = True
                return await self._read()
        except TimeoutError:
            raise WorkerTimeoutError(f"no answer within {timeout:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            if not started:
                raise NotStartedError from error
            raise WorkerDiedError(f"the worker ended: {error}") from None

    async def _read(self) -> Message:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError(await self._ending())
        reply = json.loads(line)
        if not isinstance(reply, dict):
            raise ValueError("its answer is no JSON object")
        return reply

    async def _ending(self) -> str:
        """How it ended, once its output has."""
        try:
            status = await asyncio.wait_for(self._process.wait(), _DYING_SECONDS)
        except TimeoutError:
            return "it closed its output"
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"
