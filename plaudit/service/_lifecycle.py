"""Life and death of a service process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from plaudit.errors import FailedPreconditionError, PlauditError
from plaudit.service._private_files import private_folder


def unusable_folder(path: Path, error: OSError) -> FailedPreconditionError:
    """The error of a folder for state that cannot be made or written."""
    return FailedPreconditionError(
        f"{path} cannot be used as a folder ({error.strerror}); choose another data directory",
        reason="DATA_DIR_UNUSABLE",
    )


class DataDirectory:
    """A folder that one process owns at a time; locked while the context is open.

    The lock is the kernel's, so it is gone with the process, however that ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd: int | None = None

    def __enter__(self) -> Self:
        try:
            # What lies in it is nobody else's to read.
            private_folder(self.path)
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable_folder(self.path, error) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise FailedPreconditionError(
                f"{self.path} is in use by process {holder}; stop it, or choose another data directory",
                reason="DATA_DIR_LOCKED",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode("ascii"), 0)
        self._lock_fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def exit_when_closed(fd: int, on_close: Callable[[], object]) -> threading.Thread:
    """Calls `on_close` from a thread once the far end of the pipe `fd` is closed, as by its death."""

    def wait() -> None:
        try:
            while os.read(fd, 4096):
                pass
        except OSError:
            pass  # a pipe that cannot be read is closed
        on_close()

    thread = threading.Thread(target=wait, name="parent-watch", daemon=True)
    thread.start()
    return thread


def run_service(serve: Callable[[asyncio.Event], Awaitable[None]], *, die_with_stdin: bool = False) -> int:
    """Runs `serve(stop)` until it returns; SIGTERM, SIGINT and, if asked for, the end of stdin set `stop`.

    Returns the exit status: 0, or 1 where `serve` raised a PlauditError, which is printed as one message.
    """

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)

        def stop_soon() -> None:
            with contextlib.suppress(RuntimeError):  # where it came to its end just now
                loop.call_soon_threadsafe(stop.set)

        if die_with_stdin:
            exit_when_closed(sys.stdin.fileno(), stop_soon)
        await serve(stop)

    try:
        asyncio.run(main())
    except PlauditError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 1
    return 0
