"""Streams that are opened again where they break."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Final, TypeVar

from plaudit.client._wire import Wire
from plaudit.errors import DeadlineExceededError, UnavailableError
from plaudit.gateway.v1 import training_job_service_pb2 as pb

Message = TypeVar("Message")

_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0


async def resumed(
    wire: Wire,
    method: Callable[..., Iterable[Message]],
    next_request: Callable[[], object],
    reconnect_seconds: float,
    *,
    give_up: float | None = None,
    is_break: Callable[[UnavailableError], bool] = lambda error: True,
) -> AsyncGenerator[Message, None]:
    """The messages of a stream, opened anew by `next_request()` where it breaks, until it ends by itself.

    Raises UnavailableError where it cannot be opened for `reconnect_seconds`, and DeadlineExceededError at
    `give_up`, a time of time.monotonic().
    """
    broken_since: float | None = None
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            async with aclosing(wire.stream(method, next_request(), _left(give_up))) as messages:
                async for message in messages:
                    broken_since, pause = None, _FIRST_PAUSE_SECONDS
                    yield message
            return
        except UnavailableError as error:
            broken_since = broken_since or time.monotonic()
            if not is_break(error) or time.monotonic() - broken_since > reconnect_seconds:
                raise
        await wire.pause(pause if give_up is None else min(pause, max(give_up - time.monotonic(), 0.0)))
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _left(give_up: float | None) -> float | None:
    if give_up is None:
        return None
    left = give_up - time.monotonic()
    if left <= 0:
        raise DeadlineExceededError("the time that was given is over")
    return left


class SeenLines:
    """Where to go on in a log: an event may have several lines, and the stream may break between them."""

    def __init__(self) -> None:
        self._before = ""
        self._current = ""
        self._count = 0
        self._to_skip = 0

    def reopen(self) -> str:
        """The cursor behind the last event of which every line was read."""
        self._to_skip = self._count
        return self._before

    def is_new(self, message: pb.LogText) -> bool:
        """Whether the line was not read before the stream broke."""
        if message.cursor != self._current:
            self._before, self._current, self._count, self._to_skip = self._current, message.cursor, 0, 0
        elif self._to_skip:
            self._to_skip -= 1
            return False
        self._count += 1
        return True
