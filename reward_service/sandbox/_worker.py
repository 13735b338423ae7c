"""One worker process, as the service sees it: frames to it, frames from it, what it prints, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from plaudit.types.scoring import FailureCode
from reward_service.sandbox._memory import resident_bytes

_LENGTH: Final = struct.Struct(">I")
_MOST_FRAME_BYTES: Final = 4 << 20
_MOST_START_TEXT: Final = 4096
_START_SECONDS: Final = 30.0
_MEMORY_SECONDS: Final = 0.5
_LINGER_SECONDS: Final = 0.1
"""How long after the end of a process its last frames, and after the end of its pipe its status, may come."""

OnReply = Callable[[Mapping[str, Any]], None]
OnPrint = Callable[[bytes], None]


class WorkerBroke(Exception):  # what a worker did, not a bug of ours
    """A worker broke a limit, or ended, and is gone; `code` is what its open call ends as."""

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Worker(asyncio.SubprocessProtocol):
    """A process that serves one exchange at a time: a request, and as many replies as it asks for."""

    def __init__(self, most_output_bytes: int, most_memory_bytes: int) -> None:
        """Bounds of what a call prints, and of the memory of all processes together."""
        self.on_print: OnPrint = _drop
        self._most_output = most_output_bytes
        self._most_memory = most_memory_bytes
        self._buffer = bytearray()
        self._printed = 0
        self._transport: asyncio.SubprocessTransport | None = None
        self._open_replies = 0
        self._timeout = 0.0
        self._deadline = 0.0
        self._on_reply: OnReply = _ignore
        self._end: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._start_text = bytearray()
        self._started = False
        self._broke: WorkerBroke | None = None
        self._gone = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """Whether it can take a request."""
        return self._broke is None

    async def start(self, command: Sequence[str]) -> None:
        """Starts the process and waits until it is ready. Raises WorkerBroke with what it said instead."""
        loop = asyncio.get_running_loop()
        # What it is started with is gone by the time that it runs other people's code.
        await loop.subprocess_exec(lambda: self, *command, env={}, start_new_session=True)
        await self._exchange(None, 1, _START_SECONDS, _ignore)
        self._started = True
        self._look_at_the_memory()

    async def exchange(self, request: bytes, replies: int, timeout: float, on_reply: OnReply) -> None:
        """Sends a request; each reply has `timeout` seconds from the one before it.

        Raises WorkerBroke where the process breaks a limit or ends. Where it is cancelled, the process is
        killed, for it cannot be told to stop.
        """
        await self._exchange(request, replies, timeout, on_reply)

    def kill(self) -> None:
        """Ends the process and all that it started."""
        self._break(FailureCode.CANCELLED, "the worker was ended")

    @property
    def is_gone(self) -> bool:
        """Whether there is no process any more."""
        return self._broke is not None and (self._transport is None or self._gone.is_set())

    async def gone(self) -> None:
        """Waits until the process is no more."""
        if self._transport is not None:
            await self._gone.wait()

    async def _exchange(self, request: bytes | None, replies: int, timeout: float, on_reply: OnReply) -> None:
        if self._broke is not None:
            raise self._broke
        loop = asyncio.get_running_loop()
        self._end = end = loop.create_future()
        self._open_replies = replies
        self._on_reply = on_reply
        self._timeout = timeout
        self._deadline = loop.time() + timeout
        self._timer = loop.call_at(self._deadline, self._look_at_the_clock)
        self._printed = 0
        try:
            if request is not None:
                assert self._transport is not None
                pipe = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
                pipe.write(_LENGTH.pack(len(request)) + request)
            await end
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            self._timer.cancel()
            self._end = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is over and its pipes are closed."""
        self._gone.set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It replied, or printed."""
        if self._broke is not None:
            return
        if fd == 2:
            self._take_print(data)
            return
        self._buffer += data
        while self._broke is None and (frame := self._next_frame()) is not None:
            self._take_reply(frame)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """It closed a pipe. What it prints is its own affair; without replies there is no going on."""
        if fd == 1 and self._broke is None:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._ended)

    def process_exited(self) -> None:
        """It is over; replies that it wrote may still be on their way."""
        if self._broke is None:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._ended)

    def _next_frame(self) -> Mapping[str, Any] | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _MOST_FRAME_BYTES:
            self._break_protocol()
            return None
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        try:
            frame = json.loads(self._buffer[_LENGTH.size : end])
        except (ValueError, RecursionError):
            frame = None
        del self._buffer[:end]
        if not isinstance(frame, dict):
            self._break_protocol()
            return None
        return frame

    def _take_reply(self, frame: Mapping[str, Any]) -> None:
        if self._end is None or self._open_replies == 0:
            self._break_protocol()
            return
        self._open_replies -= 1
        self._deadline = asyncio.get_running_loop().time() + self._timeout
        self._printed = 0
        try:
            self._on_reply(frame)
        except (TypeError, ValueError, KeyError, AttributeError):
            self._break_protocol()
            return
        if self._open_replies == 0 and not self._end.done():
            self._end.set_result(None)

    def _take_print(self, data: bytes) -> None:
        if not self._started:
            self._start_text += data[: _MOST_START_TEXT - len(self._start_text)]
            return
        self._printed += len(data)
        self.on_print(data)
        if self._printed > self._most_output:
            self._break(
                FailureCode.INTERNAL,
                f"printed more than {self._most_output // 1024} KiB in a call (output_kb of the server)",
            )

    def _look_at_the_clock(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._look_at_the_clock)
        else:
            self._break(FailureCode.TIMEOUT, f"ran for longer than its {self._timeout:g} s")

    def _look_at_the_memory(self) -> None:
        # Each process has a limit of its own; this is for those that start many.
        if self._broke is not None or self._transport is None:
            return
        if resident_bytes(self._transport.get_pid()) > self._most_memory:
            told = f"{self._most_memory >> 20} MiB (memory_mb of the server)"
            self._break(FailureCode.INTERNAL, f"took more memory than {told} with all its processes")
        else:
            asyncio.get_running_loop().call_later(_MEMORY_SECONDS, self._look_at_the_memory)

    def _ended(self) -> None:
        assert self._transport is not None
        status = self._transport.get_returncode()
        if not self._started:
            told = self._start_text.decode("utf-8", "replace").strip()
            self._break(FailureCode.UNAVAILABLE, told or f"ended at its start with status {status}")
        elif status is None:
            self._break(FailureCode.INTERNAL, "closed the pipe of its answers")
        else:
            self._break(FailureCode.INTERNAL, f"ended its process in a call ({_cause(status)})")

    def _break_protocol(self) -> None:
        self._break(
            FailureCode.INTERNAL, "wrote something of its own on the pipe on which its process answers"
        )

    def _break(self, code: FailureCode, message: str) -> None:
        if self._broke is not None:
            return
        self._broke = WorkerBroke(code, message)
        transport = self._transport
        if transport is not None:
            if transport.get_returncode() is None:
                # The whole group: without bubblewrap there is no namespace that ends with its first process.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(transport.get_pid(), signal.SIGKILL)
            # Not the transport's own close: it would look for the status, and take it from asyncio's watcher.
            for fd in (0, 1, 2):
                pipe = transport.get_pipe_transport(fd)
                assert pipe is not None
                if not pipe.is_closing():
                    cast(asyncio.WriteTransport, pipe).abort() if fd == 0 else pipe.close()
        if self._end is not None and not self._end.done():
            self._end.set_exception(self._broke)


def _cause(status: int) -> str:
    # bubblewrap gives the signal that ended its child as a shell does.
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        name = signal.Signals(number).name
        told = "; it may have run out of memory" if number in (signal.SIGKILL, signal.SIGABRT) else ""
        return f"by {name}{told}"
    return f"with exit status {status}"


def _drop(data: bytes) -> None:
    pass


def _ignore(frame: Mapping[str, Any]) -> None:
    pass
