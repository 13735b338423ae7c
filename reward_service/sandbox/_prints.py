"""What reward code prints: lines for the service's log, and no more of them than a person reads."""

from __future__ import annotations

import time
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_LINES_A_MINUTE: Final = 200
_MOST_LINE_BYTES: Final = 2048
_WINDOW_SECONDS: Final = 60.0


class PrintLog:
    """Logs what the workers of one function print."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._window_began = time.monotonic()
        self._logged = 0
        self._left_out = 0

    def add(self, line: bytes) -> None:
        """One line, without its end."""
        now = time.monotonic()
        if now - self._window_began > _WINDOW_SECONDS:
            self._tell_left_out()
            self._window_began, self._logged = now, 0
        if self._logged >= _LINES_A_MINUTE:
            self._left_out += 1
            return
        self._logged += 1
        text = line[:_MOST_LINE_BYTES].decode("utf-8", "replace")
        log.info("a reward printed", source=self._name, text=text + "…" * (len(line) > _MOST_LINE_BYTES))

    def _tell_left_out(self) -> None:
        if self._left_out:
            log.info("a reward printed more than is logged", source=self._name, lines=self._left_out)
            self._left_out = 0


class Lines:
    """Cuts the bytes of one pipe into lines. What is longer than a line that is logged is dropped."""

    def __init__(self, prints: PrintLog) -> None:
        self._prints = prints
        self._begun = b""

    def take(self, data: bytes) -> None:
        """Bytes as they come."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._prints.add(self._begun + line)
            self._begun = b""
        self._begun = (self._begun + rest)[: _MOST_LINE_BYTES + 1]
