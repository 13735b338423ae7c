"""What a run's process prints: kept in its directory, bounded."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""At this size the file is rotated; one older file is kept."""

_FILE_NAME: Final = "output.log"
_OLDER_FILE_NAME: Final = "output.log.1"
_TAIL_BYTES: Final = 4_096
_TAIL_LINES: Final = 20
_LOG_RECORD: Final = re.compile(r'\s*\{\s*"\w+":(?!.*"level": ?"(error|critical)").*\}\s*$')
_IMPORT_NOISE: Final = re.compile(
    r"^bitsandbytes |Failed to load CPU gemm|pip install kernels|^W\d{4} .*torch/|FutureWarning: |"
    r"DeprecationWarning: |^Loading weights: |NOTE: Redirects are currently not supported"
)
"""What bitsandbytes, torch and transformers print with every run, good or bad."""


class OutputLog:
    """Writes a run's output to `output.log`. Nothing is buffered: it is what survives a crash."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        """Appends `data`. On a full disk the output is lost, and the run goes on."""
        if self._size + len(data) > MAX_FILE_BYTES:
            self._rotate()
        try:
            os.write(self._fd, data)
        except OSError:
            return
        self._size += len(data)

    def _rotate(self) -> None:
        os.close(self._fd)
        (self._run_dir / _FILE_NAME).replace(self._run_dir / _OLDER_FILE_NAME)
        self._fd = self._open()
        self._size = 0

    def _open(self) -> int:
        return os.open(
            self._run_dir / _FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )


def last_lines(run_dir: Path) -> str:
    """The last lines that the run printed, at most 20 and 4 kB of them, but for what is no cause of its end:
    its own log, which is kept elsewhere, and what libraries print whenever they are imported. Empty where
    there is nothing else.
    """
    tail = b""
    for name in (_FILE_NAME, _OLDER_FILE_NAME):
        try:
            with (run_dir / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - (_TAIL_BYTES - len(tail))))
                tail = file.read() + tail
        except FileNotFoundError:
            break
        if len(tail) >= _TAIL_BYTES:
            break
    text = tail.decode("utf-8", "replace")
    printable = "".join(c for c in text if c.isprintable() or c == "\n")
    lines = [line for line in printable.strip().splitlines() if not _is_noise(line)]
    return "\n".join(lines[-_TAIL_LINES:])


def _is_noise(line: str) -> bool:
    return bool(_LOG_RECORD.match(line) or _IMPORT_NOISE.search(line))
