"""What can be wrong with a file of rows, and where."""

from __future__ import annotations

import signal
from dataclasses import dataclass


class WrongRowError(Exception):
    """A row that is wrong; the message says how, and what to write instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row that is wrong. `place` says where, counted from 1 as an editor does: "line 3", or "row 3"."""

    place: str
    message: str


def ending(status: int) -> str:
    """How a process that reads a file ended, in words: negative is the signal that ended it."""
    if status >= 0:
        return f"ended with status {status}"
    known = -status in signal.valid_signals()
    return f"crashed ({signal.Signals(-status).name if known else f'signal {-status}'})"


class AbandonedError(Exception):
    """Nobody waits for the rows any more, and nobody sees this."""
