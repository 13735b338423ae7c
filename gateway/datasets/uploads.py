"""A file on its way in: received in bounded memory under a name of our own, and gone where it is not kept."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, TypeVar

from plaudit.errors import ResourceExhaustedError
from plaudit.service import private_opener

MIN_FREE_BYTES: Final = 2 * 1000**3
"""Space that uploads leave free on the disk, for the checkpoints of what runs."""

_WRITE_BYTES: Final = 1024 * 1024
_BYTES_BETWEEN_DISK_CHECKS: Final = 64 * 1024 * 1024

Result = TypeVar("Result")


class ReceivedFile:
    """Bytes that a client sends, in a temporary file in `folder` that is removed when the context ends.

    `size` counts the bytes. `abandoned` is set once the caller was cancelled: work in threads looks at it
    and ends.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.path = folder / f"{secrets.token_hex(16)}.upload"
        self.converted_path = self.path.with_suffix(".parquet")
        self.abandoned = threading.Event()
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self.size = 0
        self._unchecked_bytes = 0
        self._pending = bytearray()
        self._file: IO[bytes] | None = None

    async def __aenter__(self) -> Self:
        check_free_space(self.path.parent)

        def open_new() -> None:
            self._file = open(self.path, "xb", opener=private_opener)  # noqa: SIM115  # left with the context

        try:
            await self.in_thread(open_new)
        except BaseException:
            # A client that went away just now; the context is not entered, and would not be left either.
            await self._remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._remove()

    async def _remove(self) -> None:
        def remove() -> None:
            if self._file is not None:
                self._file.close()
            self.path.unlink(missing_ok=True)
            self.converted_path.unlink(missing_ok=True)

        await self.in_thread(remove)

    async def write(self, chunk: bytes) -> None:
        """Takes the next bytes. ResourceExhaustedError beyond the limit, or where the disk fills up."""
        self.size += len(chunk)
        if self.size > self._max_bytes:
            raise ResourceExhaustedError(
                f"the file is larger than {self._max_bytes:,} bytes, the most that an upload may take; split "
                "it into several datasets, or raise max_upload_bytes in the gateway's settings",
                reason="UPLOAD_TOO_LARGE",
            )
        self._pending += chunk
        if len(self._pending) >= _WRITE_BYTES:
            await self._flush()

    async def finish(self) -> str:
        """Ends the file; the SHA-256 of what was received, hex."""
        await self._flush()
        assert self._file is not None
        await self.in_thread(self._file.close)
        return self._digest.hexdigest()

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """As the function `in_thread`, by `abandoned`."""
        return await in_thread(work, self.abandoned)

    async def _flush(self) -> None:
        block, self._pending = bytes(self._pending), bytearray()
        self._unchecked_bytes += len(block)
        if self._unchecked_bytes >= _BYTES_BETWEEN_DISK_CHECKS:
            self._unchecked_bytes = 0
            check_free_space(self.path.parent)
        file = self._file
        assert file is not None

        def write() -> None:
            self._digest.update(block)
            file.write(block)

        await self.in_thread(write)


async def in_thread(work: Callable[[], Result], abandoned: threading.Event) -> Result:
    """Runs `work` in a thread. A caller that is cancelled sets `abandoned`, and waits until the work ends."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        abandoned.set()
        # What the work says of its end is told to nobody.
        await asyncio.gather(task, return_exceptions=True)
        raise


def check_free_space(folder: Path) -> None:
    """Raises ResourceExhaustedError where the disk of `folder` has less than MIN_FREE_BYTES left."""
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise ResourceExhaustedError(
            f"only {free / 1000**3:.1f} GB are free on the gateway's disk, and uploads leave "
            f"{MIN_FREE_BYTES / 1000**3:.0f} GB; make room, then upload again",
            reason="DISK_FULL",
        )
