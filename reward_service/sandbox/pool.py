"""A pool of warm workers: who runs what, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self

import structlog

from plaudit.types.scoring import Outcome
from reward_service._item import Item
from reward_service.sandbox._confinement import Confinement, Interpreter, SandboxUnavailable
from reward_service.sandbox._queue import Portion, ProgramQueue, Waiting
from reward_service.sandbox._slot import Slot, StartFailed
from reward_service.sandbox._worker import WorkerBroke
from reward_service.sandbox.program import Program, ProgramRefused, Signature
from reward_service.sandbox.settings import SandboxSettings

log = structlog.get_logger(__name__)

_LEAST_TURN_SECONDS: Final = 1.0
"""How long a function keeps a worker that others wait for: loading another one takes a tenth of that."""

_NAMESPACES_REFUSED: Final = (
    "bubblewrap cannot make a sandbox here: {}. It needs user namespaces: allow them (sysctl "
    "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container a "
    "seccomp profile that allows clone and mount), or let the operator set allow_unsandboxed = true in "
    "[reward.sandbox]"
)


class SandboxPool:
    """Runs programs in `settings.workers` processes. An async context manager.

    Nothing is started before the first program is loaded, as most servers never run one; from then on
    workers stand ready, and each that had to be killed is replaced at once.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._slots: list[Slot] = []
        self._queues: dict[Program, ProgramQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        self._dispatch_is_due = False
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(slot.close() for slot in self._slots))

    async def load(self, program: Program) -> Signature:
        """Loads a program into a worker, once, however many ask for it.

        Raises ProgramRefused where the source gives no reward function, and SandboxUnavailable where nothing
        can be run here. Loading goes on where the caller is cancelled.
        """
        known = self._queues.get(program)
        if known is not None and known.signature.done():
            return known.signature.result()
        await self._start()
        queue = self._queue(program)
        self._dispatch_soon()
        return await asyncio.shield(queue.signature)

    def signature_of(self, program: Program) -> Signature | None:
        """What `load` found in a program; None where it is not loaded, or gives no reward function."""
        known = self._queues.get(program)
        if known is None or not known.signature.done() or known.signature.exception() is not None:
            return None
        return known.signature.result()

    async def score(self, program: Program, item: Item[Any]) -> Outcome:
        """What the program says of one completion. Raises SandboxUnavailable.

        Where it is cancelled, the item is taken back, and the worker that is at it is killed.
        """
        await self._start()
        queue = self._queue(program)
        tripped = queue.tripped_outcome
        if tripped is not None:
            return tripped
        waiting = Waiting(item, asyncio.get_running_loop().create_future())
        queue.waiting.append(waiting)
        self._dispatch_soon()
        try:
            return await waiting.outcome
        except asyncio.CancelledError:
            # Soon, not now: a whole batch is taken back at once.
            asyncio.get_running_loop().call_soon(queue.forget_cancelled)
            raise

    async def _start(self) -> None:
        if self._slots:
            return
        async with self._starting:
            if self._slots:
                return
            interpreter = await Interpreter.probe(self._settings.python)
            first = await self._first_slot(interpreter)
            # Together, for whoever sees slots may use them.
            self._slots = [
                first,
                *(Slot(number, first.confinement) for number in range(1, self._settings.workers)),
            ]
            for slot in self._slots[1:]:
                self._refresh(slot)

    async def _first_slot(self, interpreter: Interpreter) -> Slot:
        """The first worker says whether there can be any."""
        try:
            slot = Slot(0, Confinement(interpreter, self._settings, Confinement.find_bwrap(self._settings)))
            try:
                await slot.fresh()
            except StartFailed as error:
                raise SandboxUnavailable(_NAMESPACES_REFUSED.format(error)) from None
            return slot
        except SandboxUnavailable as unavailable:
            if not self._settings.allow_unsandboxed:
                raise
            log.warning(
                "reward code runs without a sandbox, and can read files and use the network",
                allow_unsandboxed=True,
                reason=str(unavailable),
            )
        slot = Slot(0, Confinement(interpreter, self._settings, None))
        try:
            await slot.fresh()
        except StartFailed as error:
            raise SandboxUnavailable(f"no process for reward code can be started: {error}") from None
        return slot

    def _queue(self, program: Program) -> ProgramQueue:
        queue = self._queues.get(program)
        if queue is None:
            queue = self._queues[program] = ProgramQueue(program)
        return queue

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _dispatch_soon(self) -> None:
        # After what is scored in the same turn of the loop: it goes to the worker in one frame.
        if not self._dispatch_is_due:
            self._dispatch_is_due = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_is_due = False
        if self._closed:
            return
        for queue in sorted(self._queues.values(), key=lambda queue: queue.workers):
            while queue.wants_worker and queue.workers < self._share_of(queue):
                slot = self._slot_for(queue)
                if slot is None:
                    break
                slot.is_busy = True
                queue.workers += 1
                queue.takers += 1
                self._run(self._serve(slot, queue))

    def _share_of(self, queue: ProgramQueue) -> int:
        """The most workers that one program has: one stays free for another."""
        most = max(1, len(self._slots) - 1)
        return max(1, most // 2) if queue.breaks else most

    def _slot_for(self, queue: ProgramQueue) -> Slot | None:
        idle = [slot for slot in self._slots if not slot.is_busy]
        for slot in idle:
            if slot.holds(queue.program):
                return slot
        for slot in idle:
            if slot.program is None:
                return slot
        # One that is idle is not needed by the program that it holds.
        return min(idle, key=lambda slot: slot.used_at, default=None)

    async def _serve(self, slot: Slot, queue: ProgramQueue) -> None:
        """Lets `slot` work for `queue` until there is nothing left, or it is another's turn."""
        taker = True
        try:
            if not slot.holds(queue.program) and not await self._loaded(slot, queue):
                return
            self._dispatch_soon()  # once it is known to load, more workers may take it
            while not self._is_anothers_turn(slot, queue):
                portion = queue.take_portion()
                if taker:
                    taker = False
                    queue.takers -= 1
                if portion is None:
                    break
                await self._run_portion(slot, queue, portion)
                if slot.program is None and not await self._loaded(slot, queue):
                    return
            slot.evict_after(self._settings.idle_seconds, self._refresh)
        except StartFailed as error:
            log.error("a worker for reward code could not be started; trying again", reason=str(error))
            await asyncio.sleep(slot.backoff())
        finally:
            slot.is_busy = False
            queue.workers -= 1
            queue.takers -= taker
            self._forget_unused(queue)
            self._dispatch_soon()

    async def _loaded(self, slot: Slot, queue: ProgramQueue) -> bool:
        try:
            queue.loaded(await slot.load(queue.program, queue.prints, self._settings.load_seconds))
            return True
        except ProgramRefused as refused:
            queue.refused(refused)
        except WorkerBroke as broke:
            queue.refused(ProgramRefused(f"could not be imported: it {broke.message}"))
        self._queues.pop(queue.program, None)
        await slot.fresh()
        return False

    async def _run_portion(self, slot: Slot, queue: ProgramQueue, portion: Portion) -> None:
        """Leaves the slot with the program loaded, or with nothing where its worker had to be replaced."""
        try:
            await slot.run(portion)
        except WorkerBroke as broke:
            queue.broke(portion, broke)
            await slot.fresh()
        else:
            queue.finished(portion)
            if portion.is_last:
                await slot.fresh()

    def _is_anothers_turn(self, slot: Slot, queue: ProgramQueue) -> bool:
        if queue.workers > self._share_of(queue):
            return True
        if slot.loaded_at + _LEAST_TURN_SECONDS > time.monotonic():
            return False
        return any(other.wants_worker and not other.workers for other in self._queues.values())

    def _forget_unused(self, queue: ProgramQueue) -> None:
        if queue.is_unused and all(slot.program is not queue.program for slot in self._slots):
            self._queues.pop(queue.program, None)

    def _refresh(self, slot: Slot) -> None:
        """Puts a fresh worker, with nothing loaded, in the place of the one that is there."""
        # Now, not when the task begins: nobody else takes the slot in between.
        slot.is_busy = True
        self._run(self._refreshed(slot))

    async def _refreshed(self, slot: Slot) -> None:
        program = slot.program
        with contextlib.suppress(StartFailed):  # it is tried again when the slot is used, and told then
            await slot.fresh()
        slot.is_busy = False
        if program is not None and program in self._queues:
            self._forget_unused(self._queues[program])
        self._dispatch_soon()
