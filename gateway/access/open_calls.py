"""The calls that are open, by who makes them, so that a token that is revoked ends them at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from plaudit.errors import ResourceExhaustedError, UnauthenticatedError


@dataclass(slots=True, eq=False)
class _OpenCall:
    task: asyncio.Task[Any]
    ended_because: str = ""


class OpenCalls:
    """Counts open calls by key, and ends those of a key."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, set[_OpenCall]] = defaultdict(set)

    @contextmanager
    def within(self, key: str, *, most: int, seconds_left: float | None = None) -> Iterator[None]:
        """While the context is open, the current task is a call of `key`.

        Raises ResourceExhaustedError where `key` has `most` open, and UnauthenticatedError once it is ended
        from outside or `seconds_left` have passed.
        """
        if len(self._calls.get(key, ())) >= most:
            raise ResourceExhaustedError(
                f"{most} calls of this caller are open, the most that is accepted; end some, or raise the "
                "gateway's setting for it",
                reason="TOO_MANY_CALLS",
                retry_after=1.0,
            )
        task = asyncio.current_task()
        assert task is not None
        call = _OpenCall(task)
        self._calls[key].add(call)
        timer = None
        if seconds_left is not None:
            timer = asyncio.get_running_loop().call_later(
                seconds_left, _end, call, "the token has expired; ask an admin for a new one"
            )
        try:
            yield
        except asyncio.CancelledError:
            if not call.ended_because:
                raise
            task.uncancel()
            raise UnauthenticatedError(call.ended_because) from None
        finally:
            if timer is not None:
                timer.cancel()
            self._calls[key].discard(call)
            if not self._calls[key]:
                del self._calls[key]

    def end(self, key: str, why: str) -> None:
        """Ends every open call of `key` but this one with UnauthenticatedError."""
        for call in list(self._calls.get(key, ())):
            if call.task is not asyncio.current_task():
                _end(call, why)


def _end(call: _OpenCall, why: str) -> None:
    if not call.ended_because:
        call.ended_because = why
        call.task.cancel()
