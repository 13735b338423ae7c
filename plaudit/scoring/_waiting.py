"""Callers that wait, in their own threads, for submissions to be complete."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from plaudit.scoring._work import Submission


class Waiter:
    """One such caller. `look` is called in the event loop, where something was completed."""

    def __init__(self, waited_for: Sequence[Submission]) -> None:
        self.is_over = threading.Event()
        self._waited_for = waited_for
        self._complete = 0

    @property
    def has_seen_all(self) -> bool:
        """Whether each of them was seen to be complete."""
        return self._complete == len(self._waited_for)

    def look(self) -> None:
        """Goes on to the first one that is open. Over all looks, each submission is passed once."""
        while self._complete < len(self._waited_for):
            if not self._waited_for[self._complete].is_complete:
                return
            self._complete += 1
        self.is_over.set()
