"""An open Score stream: frames out in order, frames in, and the ways it ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import grpc
import grpc.aio

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring._connection import LostError, ScoreCall, end_of_call
from plaudit.scoring._work import SentBatch


class Stream:
    """Writes without waiting, reads until the end. `timeout` (seconds) is for the end after a half-close."""

    def __init__(self, call: ScoreCall, timeout: float) -> None:
        self._call = call
        self._timeout = timeout
        self._outbox: deque[pb.ScoreRequest | SentBatch | None] = deque()
        self._outbox_filled = asyncio.Event()
        self._is_half_closed = False
        self._broken_off: LostError | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def put(self, item: pb.ScoreRequest | SentBatch) -> None:
        """Sends a frame after those before it; a batch notes when it has been written."""
        self._outbox.append(item)
        self._outbox_filled.set()

    def half_close(self) -> None:
        """Says that no more comes; the server then ends the stream, or it is broken off."""
        if not self._is_half_closed:
            self._is_half_closed = True
            self._outbox.append(None)
            self._outbox_filled.set()
            self.break_off_in(self._timeout, "it did not end the stream after the half-close")

    def break_off(self, reason: str) -> None:
        """Ends the stream from this side."""
        self._broken_off = LostError(reason)
        self._call.cancel()

    def break_off_in(self, seconds: float, reason: str) -> None:
        """Ends the stream from this side, unless it has ended by then."""
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(seconds, self.break_off, reason))

    async def frames(self) -> AsyncGenerator[pb.ScoreResponse, None]:
        """What comes, until the server ends the stream with OK; else raises LostError or RefusedError."""
        writer = asyncio.create_task(self._write())
        try:
            while (frame := await self._call.read()) is not grpc.aio.EOF:
                if not isinstance(frame, pb.ScoreResponse):
                    raise LostError("it sent a frame that is no ScoreResponse", unreadable=True)
                yield frame
        except grpc.aio.AioRpcError as failure:
            raise end_of_call(failure, self._timeout) from failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._broken_off is not None and task is not None and not task.cancelling():
                raise self._broken_off from None
            raise
        finally:
            writer.cancel()
            for timer in self._timers:
                timer.cancel()

    async def _write(self) -> None:
        try:
            while True:
                await self._outbox_filled.wait()
                self._outbox_filled.clear()
                while self._outbox:
                    item = self._outbox.popleft()
                    if item is None:
                        await self._call.done_writing()
                        return
                    if isinstance(item, SentBatch):
                        await self._call.write(item.frame)
                        item.written = True
                    else:
                        await self._call.write(item)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended, and reading says why
