"""How much a dataset may hold, however small its file is: a few kB can stand for terabytes."""

from __future__ import annotations

from typing import Final

from plaudit.errors import ResourceExhaustedError

DEFAULT_MAX_UNPACKED_BYTES: Final = 8 * 1000**3
MAX_ROWS: Final = 10_000_000
_PER_LARGEST_UPLOAD: Final = 4
_PER_BYTE: Final = 1_000
_FREE_BYTES: Final = 256 * 1000**2


def most_unpacked(file_bytes: int, max_upload_bytes: int) -> int:
    """Bytes that the rows of a file of `file_bytes` may take; a small one that holds much is soon refused."""
    return min(_PER_LARGEST_UPLOAD * max_upload_bytes, _FREE_BYTES + _PER_BYTE * file_bytes)


class Unpacked:
    """Counts rows and the bytes that they take, while they are read."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_UNPACKED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._rows = 0

    def add(self, rows: int, size: int) -> None:
        """Counts `rows` of `size` bytes in all. ResourceExhaustedError (UPLOAD_TOO_LARGE) beyond a limit."""
        self._rows += rows
        self._bytes += size
        if self._rows > MAX_ROWS:
            raise ResourceExhaustedError(
                f"the file has more than {MAX_ROWS:,} rows, the most of a dataset; split it into several",
                reason="UPLOAD_TOO_LARGE",
            )
        if self._bytes > self._max_bytes:
            raise ResourceExhaustedError(
                f"the rows of the file take more than {self._max_bytes:,} bytes unpacked (counted up to row "
                f"{self._rows:,}), the most for a file of its size; split it into several datasets, or take "
                f"out what is repeated: rows may take {_PER_BYTE:,} times their file and "
                f"{_FREE_BYTES // 1000**2} MB, and at most {_PER_LARGEST_UPLOAD} times max_upload_bytes of "
                "the gateway's settings",
                reason="UPLOAD_TOO_LARGE",
            )
