"""A run tells what happens: entries go to the journal on disk first, then the service hears of them."""

from __future__ import annotations

from typing import Any

from plaudit.types.statuses import RunState
from trainer_service.control import RunControl
from trainer_service.journal import (
    JournalEntry,
    JournalWriter,
    LogLevel,
    LogLine,
    RunStateChanged,
    StepCompleted,
)


class RunCancelledError(Exception):
    """The run was cancelled; raised wherever it notices, and turned into its last entry at one place."""


class RunReporter:
    """Writes a run's journal, keeps the service informed, and watches for what the service asks."""

    def __init__(self, journal: JournalWriter, control: RunControl) -> None:
        self._journal = journal
        self._control = control
        self._state = RunState.STARTING
        self._sequence = 0
        self._step = 0
        self._total_steps = 0
        self._detail = ""

    @property
    def pause_requested(self) -> bool:
        """Whether the service asked for a pause."""
        return self._control.pause_requested

    @property
    def cancel_requested(self) -> bool:
        """Whether the service asked the run to stop."""
        return self._control.cancel_requested

    def append(self, entry: JournalEntry) -> None:
        """Commits an entry and reports it."""
        self._sequence = self._journal.append(entry)
        if isinstance(entry, StepCompleted):
            self._step, self._total_steps = entry.step, entry.total_steps
        elif isinstance(entry, RunStateChanged):
            self._state = entry.state
        self._report()

    def starts_at(self, step: int, total_steps: int) -> None:
        """Tells where training begins, before the first step is done."""
        self._step, self._total_steps = step, total_steps
        self._report()

    def enter(self, state: RunState, reason: str = "") -> None:
        """Enters a state that is not terminal, once."""
        if self._state is not state:
            self.append(RunStateChanged(state, reason=reason))

    def log(self, level: LogLevel, message: str, **fields: Any) -> None:
        """Writes a line for people."""
        self.append(LogLine(level, message, fields))

    def waiting_for(self, detail: str) -> None:
        """Tells what the run waits for, for people; empty: for nothing."""
        if detail != self._detail:
            self._detail = detail
            self._report()

    def check(self) -> None:
        """Notices what the service asked for. Raises RunCancelledError where that is to stop."""
        if self._control.cancel_requested:
            self.enter(RunState.CANCELLING)
            raise RunCancelledError
        if self._control.pause_requested:
            self.enter(RunState.PAUSING, "asked to pause")

    def _report(self) -> None:
        self._control.report(
            sequence=self._sequence,
            step=self._step,
            total_steps=self._total_steps,
            status_detail=self._detail,
        )
