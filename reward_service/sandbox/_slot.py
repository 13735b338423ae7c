"""A place in the pool: a worker process, what it has loaded, and the next one when it is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from reward_service.sandbox._confinement import Confinement
from reward_service.sandbox._prints import Lines, PrintLog
from reward_service.sandbox._queue import Portion
from reward_service.sandbox._worker import Worker, WorkerBroke
from reward_service.sandbox.program import Program, ProgramRefused, Signature

_FIRST_BACKOFF_SECONDS: Final = 0.5
_LONGEST_BACKOFF_SECONDS: Final = 10.0


class StartFailed(Exception):  # a state of the machine, not a bug
    """No worker could be started; the message is what it said instead."""


class Slot:
    """One worker at a time. A process never runs two programs: what one left behind is not the other's."""

    def __init__(self, number: int, confinement: Confinement) -> None:
        self.confinement = confinement
        self.program: Program | None = None
        self.is_busy = False
        self.loaded_at = 0.0
        self.used_at = 0.0
        self._number = number
        self._worker: Worker | None = None
        self._leaving: list[Worker] = []
        """The worker, and those before it that are not gone yet."""
        self._failures = 0
        self._eviction: asyncio.TimerHandle | None = None

    async def fresh(self) -> None:
        """Puts a new process, with nothing loaded, in the place of the one that is there."""
        self.program = None
        if self._worker is not None:
            self._worker.kill()
        settings = self.confinement.settings
        worker = self._worker = Worker(settings.output_kb << 10, settings.memory_mb << 20)
        self._leaving = [former for former in self._leaving if not former.is_gone] + [worker]
        try:
            await worker.start(self.confinement.command(self._number))
        except (WorkerBroke, OSError) as error:
            self._failures += 1
            worker.kill()
            raise StartFailed(str(error)) from None
        self._failures = 0

    def holds(self, program: Program) -> bool:
        """Whether a worker is there that has loaded `program`."""
        return self.program is program and self._worker is not None and self._worker.is_alive

    def backoff(self) -> float:
        """Seconds until the next try, after starts that failed."""
        return min(_FIRST_BACKOFF_SECONDS * 2.0**self._failures, _LONGEST_BACKOFF_SECONDS)

    async def load(self, program: Program, prints: PrintLog, seconds: float) -> Signature:
        """Loads a program. Raises ProgramRefused, WorkerBroke and StartFailed."""
        if self._eviction is not None:
            self._eviction.cancel()
        if self._worker is None or not self._worker.is_alive or self.program is not None:
            await self.fresh()
        assert self._worker is not None
        replies: list[Mapping[str, Any]] = []
        self.program = program
        self._worker.on_print = Lines(prints).take
        await self._worker.exchange(program.load_request(), 1, seconds, replies.append)
        self.loaded_at = self.used_at = time.monotonic()
        return _signature_of(replies[0])

    async def run(self, portion: Portion) -> None:
        """Answers the calls of a portion. Raises WorkerBroke."""
        worker = self._worker
        assert worker is not None
        portion.kill = worker.kill
        try:
            await worker.exchange(
                portion.request(), portion.calls, portion.program.timeout, portion.take_reply
            )
        finally:
            portion.kill = None
            self.used_at = time.monotonic()

    def evict_after(self, seconds: float, evict: Callable[[Slot], None]) -> None:
        """Calls `evict` where what is loaded is not used for so long."""
        if self._eviction is not None:
            self._eviction.cancel()

        def look() -> None:
            if not self.is_busy:
                evict(self)

        self._eviction = asyncio.get_running_loop().call_later(seconds, look)

    async def close(self) -> None:
        """Ends the process, and waits until it and those before it are gone."""
        if self._eviction is not None:
            self._eviction.cancel()
        for worker in self._leaving:
            worker.kill()
            await worker.gone()


def _signature_of(reply: Mapping[str, Any]) -> Signature:
    if "refused" in reply:
        line = reply.get("line") or 0
        told = str(reply["refused"])
        raise ProgramRefused(f"{told} (line {line})" if line and f":{line})" not in told else told)
    loaded = reply["loaded"]
    return Signature(str(loaded["name"]), str(loaded["format"]), tuple(map(str, loaded["required_columns"])))
