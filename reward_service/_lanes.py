"""Concurrency of one reward: so many calls at once, and sessions take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Protocol


class Call(Protocol):
    """One call of a reward's function, for some items of one batch."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Makes the call and reports what came of it."""


class Lane:
    """Runs calls, at most `concurrency` at once. A call that waits costs no task.

    Each owner (a session, or a single call) has a queue of its own and the queues take turns, so that a
    session with much to score delays the others by one call each, not by all of its own.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        # A dict as the queue: calls leave from the middle when their batch is cancelled.
        self._waiting: OrderedDict[object, dict[Call, None]] = OrderedDict()
        self._running: dict[Call, asyncio.Task[None]] = {}

    def submit(self, owner: object, call: Call) -> None:
        """Runs `call` when it is its turn."""
        if len(self._running) < self._concurrency and not self._waiting:
            self._start(call)
        else:
            self._waiting.setdefault(owner, {})[call] = None

    def withdraw(self, owner: object, call: Call) -> None:
        """Takes `call` back: it is not begun, or is cancelled. Nothing happens where it is over."""
        task = self._running.get(call)
        if task is not None:
            task.cancel()
            return
        queue = self._waiting.get(owner)
        if queue is not None and queue.pop(call, call) is None and not queue:
            del self._waiting[owner]

    def _start(self, call: Call) -> None:
        task = asyncio.get_running_loop().create_task(call.run())
        self._running[call] = task
        task.add_done_callback(lambda _: self._ended(call))

    def _ended(self, call: Call) -> None:
        del self._running[call]
        while self._waiting and len(self._running) < self._concurrency:
            owner, queue = next(iter(self._waiting.items()))
            following = next(iter(queue))
            del queue[following]
            if queue:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            self._start(following)
