"""Lines of a file in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from gateway.datasets.rows import MAX_ROW_BYTES


def bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines without their end; of a line that is too long, its first MAX_ROW_BYTES + 1 bytes or more."""
    while line := file.readline(MAX_ROW_BYTES + 2):
        ended = line.endswith(b"\n")
        yield line[:-1] if ended else line
        while not ended and (rest := file.readline(MAX_ROW_BYTES)):
            ended = rest.endswith(b"\n")
