"""The worker's loop: limits first, then frames in, calls, frames out.

A frame is its length in four bytes, big end first, and that many bytes of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import struct
import sys
from pathlib import Path
from typing import Any, Final

from .calls import Call, Function
from .loading import Refused, load

_LENGTH: Final = struct.Struct(">I")
_READ_BYTES: Final = 1 << 20


def main() -> None:
    """Serves until stdin ends."""
    limits: dict[str, Any] = json.loads(sys.argv[1])
    sys.argv = [""]
    sys.path.extend(limits["packages"])
    channel = Channel()
    limit(limits)
    channel.write({"ready": True})
    function: Function | None = None
    while True:
        request = channel.read()
        if "load" in request:
            try:
                function = load(request["load"])
            except Refused as refused:
                channel.write({"refused": str(refused), "line": refused.line})
            else:
                channel.write({"loaded": function.described()})
        else:
            assert function is not None, "the service loads first"
            _run(function, request, channel)


def _run(function: Function, request: dict[str, Any], channel: Channel) -> None:
    own = os.getpid()
    for call in Call.all_of(request):
        reply = function.answer(call)
        if os.getpid() != own:
            os._exit(0)  # a child that the function forked, and that came back here
        _flush()
        channel.write(reply)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The function may have closed it, or put something else in its place.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def limit(limits: dict[str, Any]) -> None:
    """Lowers the limits of this process and of all that it starts; none of them can raise them again."""
    # Python would not notice that a compiled module which it stores is cut off, and everybody would load it.
    sys.dont_write_bytecode = True
    processes = limits["processes"]
    if not limits["alone"]:
        processes += _threads_of_user()
    for kind, most in (
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _threads_of_user() -> int:
    """Outside of a sandbox the kernel counts all threads of the user, not those of a worker."""
    count = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                count += sum(1 for _ in Path(entry.path, "task").iterdir())
    return count


class Channel:
    """Frames from and to the service, on descriptors that nothing else of this process uses by accident.

    What the function prints, on stdout or stderr, goes to the third pipe.
    """

    def __init__(self) -> None:
        self._in = os.dup(0)
        self._out = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._buffer = b""

    def read(self) -> dict[str, Any]:
        """The next frame. Where there is none any more, the process is over."""
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        frame: dict[str, Any] = json.loads(self._take(length))
        return frame

    def write(self, frame: dict[str, Any]) -> None:
        """Sends a frame."""
        data = json.dumps(frame, allow_nan=False).encode("utf-8", "replace")
        view = memoryview(_LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self._out, view) :]

    def _take(self, count: int) -> bytes:
        parts = [self._buffer]
        size = len(self._buffer)
        while size < count:
            part = os.read(self._in, _READ_BYTES)
            if not part:
                os._exit(0)
            parts.append(part)
            size += len(part)
        data = b"".join(parts)
        self._buffer = data[count:]
        return data[:count]
