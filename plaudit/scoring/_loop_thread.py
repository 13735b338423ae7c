"""A thread with an event loop of its own, and how other threads have something done in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from plaudit.service import get_logger

log = get_logger(__name__)

ANSWER_SECONDS: Final = 30.0
"""The event loop answers at once; this keeps its death from hanging the caller."""


class LoopThread:
    """Runs a coroutine to its end. All but `loop` may be used from any thread."""

    def __init__(
        self, main: Callable[[], Coroutine[Any, Any, None]], on_end: Callable[[], None], name: str
    ) -> None:
        """`main` is begun by `start`, in the thread, which calls `on_end` when it does nothing any more."""
        self.loop = asyncio.new_event_loop()
        self.has_ended = threading.Event()
        self._main = main
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread; returns at once."""
        self._thread.start()

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Has the event loop call `function`; False where it has ended."""
        if self.has_ended.is_set():
            return False
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:  # it ended just now
            return False
        return True

    def call_and_wait(self, function: Callable[[], object]) -> None:
        """Has the event loop call `function`, and waits for it. A mistake of ours is logged, not raised."""
        called = threading.Event()

        def call() -> None:
            try:
                function()
            except Exception:
                log.exception("unexpected error in the scorer")
            called.set()

        if self.call_soon(call) and not called.wait(ANSWER_SECONDS):
            log.error("the scorer's event loop does not answer")

    def end(self, ask: Callable[[], object], timeout: float) -> None:
        """Has the event loop call `ask`, upon which `main` returns, and waits for that so many seconds.

        Where the thread was never started, the event loop is closed.
        """
        if self._thread.is_alive():
            self.call_soon(ask)
            self._thread.join(timeout)
        else:
            self.has_ended.set()
            self.loop.close()

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._main())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except Exception:
            log.exception("the scorer's event loop failed")
        finally:
            self.has_ended.set()
            self._on_end()
            self.loop.close()
