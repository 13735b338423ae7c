"""A fixed number of workers. One that hangs or dies is replaced, and takes its own request with it alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import structlog

from plaudit.errors import UnavailableError
from plaudit.types.validation import shown
from reward_service.workers._worker import (
    Canary,
    Message,
    NotStartedError,
    Worker,
    WorkerDiedError,
    WorkerTimeoutError,
)

log = structlog.get_logger(__name__)

START_TIMEOUT_SECONDS: Final = 30.0
_FIRST_BACKOFF_SECONDS: Final = 1.0
_LONGEST_BACKOFF_SECONDS: Final = 30.0


class WorkerPool:
    """Keeps `size` processes of one program ready, each checked by canaries before its first request.

    They are started by `start`, and are gone after `close`, or when the context is left.
    """

    def __init__(self, name: str, command: Sequence[str], *, size: int, canaries: Sequence[Canary]) -> None:
        """`command` is the program with its arguments; `name` is for logs and errors."""
        self._name = name
        self._command = tuple(command)
        self._size = size
        self._canaries = tuple(canaries)
        self._idle: deque[Worker] = deque()
        self._checked: set[Worker] = set()
        self._fault: str | None = None
        self._changed = asyncio.Condition()
        self._keepers: list[asyncio.Task[None]] = []
        self._conversations: set[asyncio.Task[Message]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def pids(self) -> list[int]:
        """Processes that take requests now."""
        return [worker.pid for worker in self._checked]

    def start(self) -> None:
        """Starts the workers, where that was not done before."""
        if not self._keepers:
            self._keepers = [asyncio.create_task(self._keep()) for _ in range(self._size)]

    async def ready(self) -> None:
        """Waits until a worker has passed its canaries; UnavailableError says why none does."""
        self.start()
        async with self._changed:
            await self._changed.wait_for(lambda: self._checked or self._fault)
        self._raise_fault()

    async def ask(self, request: Message, timeout: float) -> Message:
        """The reply of a worker to `request`, within `timeout` seconds of its beginning.

        Raises WorkerTimeoutError, WorkerDiedError, or UnavailableError where no worker can be had. Where the
        task is cancelled, its worker is free again when it has answered, or is killed at the timeout.
        """
        self.start()
        while True:
            worker = await self._take()
            conversation = asyncio.create_task(self._converse(worker, request, timeout))
            self._conversations.add(conversation)
            conversation.add_done_callback(self._ended)
            try:
                return await asyncio.shield(conversation)
            except NotStartedError:
                continue

    async def close(self) -> None:
        """Kills every worker."""
        tasks = [*self._keepers, *self._conversations]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keepers = []

    def _ended(self, conversation: asyncio.Task[Message]) -> None:
        self._conversations.discard(conversation)
        if not conversation.cancelled():
            conversation.exception()  # is seen, also where nobody waits for it any more

    async def _take(self) -> Worker:
        async with self._changed:
            while True:
                await self._changed.wait_for(lambda: self._idle or (self._fault and not self._checked))
                if not self._idle:
                    self._raise_fault()
                worker = self._idle.popleft()
                if worker.is_alive:
                    return worker

    async def _converse(self, worker: Worker, request: Message, timeout: float) -> Message:
        try:
            reply = await worker.ask(request, timeout)
        except (WorkerTimeoutError, WorkerDiedError) as error:
            log.warning("a worker is replaced", pool=self._name, pid=worker.pid, why=str(error))
            raise
        async with self._changed:
            self._idle.append(worker)
            self._changed.notify_all()
        return reply

    async def _keep(self) -> None:
        """Keeps one worker running, for ever."""
        backoff = _FIRST_BACKOFF_SECONDS
        while True:
            worker: Worker | None = None
            try:
                worker = await Worker.start(self._command)
                fault = await self._fault_of(worker)
                if fault is None:
                    backoff = _FIRST_BACKOFF_SECONDS
                    await self._offer(worker)
                    await worker.wait()
                    continue
            except OSError as error:
                fault = f"a process cannot be started: {error}"
            finally:
                if worker is not None:
                    worker.kill()
                    await worker.wait()
                    await self._withdraw(worker)
            log.error("a worker is of no use", pool=self._name, why=fault, again_in_seconds=backoff)
            async with self._changed:
                self._fault = fault
                self._changed.notify_all()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _LONGEST_BACKOFF_SECONDS)

    async def _fault_of(self, worker: Worker) -> str | None:
        """What the canaries find wrong with a worker."""
        for canary in self._canaries:
            try:
                reply = await worker.ask(canary.request, START_TIMEOUT_SECONDS)
            except (WorkerTimeoutError, WorkerDiedError) as error:
                return str(error)
            except NotStartedError as error:
                return f"it did not start: {error.__cause__}"
            if not canary.reply.items() <= reply.items():
                return f"it answers {shown(reply)} to {shown(canary.request)}, and not {shown(canary.reply)}"
        return None

    async def _offer(self, worker: Worker) -> None:
        async with self._changed:
            self._fault = None
            self._checked.add(worker)
            self._idle.append(worker)
            self._changed.notify_all()

    async def _withdraw(self, worker: Worker) -> None:
        async with self._changed:
            self._checked.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)

    def _raise_fault(self) -> None:
        if self._fault and not self._checked:
            raise UnavailableError(
                f"the workers of {self._name} are of no use: {self._fault}",
                reason="WORKERS_UNAVAILABLE",
                retry_after=_LONGEST_BACKOFF_SECONDS,
            )
