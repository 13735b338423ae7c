"""A job's log as text: one line for everything that happened, as `tail -f` would show it."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC
from typing import Final

from gateway.event_hub import EventHub
from gateway.events import (
    Alert,
    AttemptStarted,
    Bookmark,
    CheckpointSaved,
    Event,
    LogLine,
    Payload,
    StatusChanged,
    StepMetrics,
)
from gateway.jobs.service import JobService
from plaudit.errors import FailedPreconditionError
from plaudit.types.metrics import EVAL_REWARD_MEAN, HEADLINE_METRICS

_CONTINUED: Final = "| "
"""Before the further lines of a text: none of it can pass for a line of our own."""


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """A line without its end; `cursor` is that of its event, and "" in the last line of a log."""

    text: str
    cursor: str = ""


class JobLog:
    """Reads logs. Methods raise NotFoundError for a job that is not known."""

    def __init__(self, jobs: JobService, events: EventHub) -> None:
        self._jobs = jobs
        self._events = events

    async def follow(
        self, job_id: str, *, after_cursor: str = "", from_start: bool = True
    ) -> AsyncIterator[LoggedLine]:
        """The lines after a cursor ("": all), up to `[Job completed]`, `[Job failed]` or `[Job cancelled]`.

        Where not `from_start`, a job that no trainer has had yet is refused: FailedPreconditionError
        (NOT_STARTED). Otherwise as EventHub.watch.
        """
        job = await self._jobs.get(job_id)
        if not from_start and job.attempt == 0 and not job.status.is_terminal:
            raise FailedPreconditionError(
                f"job {job_id} is {job.status}: its log begins when a trainer starts it; ask again then",
                reason="NOT_STARTED",
            )
        return self._follow(job_id, await self._events.watch(job_id, after_cursor))

    async def so_far(self, job_id: str) -> tuple[bool, AsyncIterator[LoggedLine]]:
        """Whether the job is over, and the lines that there are by now."""
        job = await self._jobs.get(job_id)
        return job.status.is_terminal, self._so_far(job_id)

    async def _follow(self, job_id: str, events: AsyncIterator[Event]) -> AsyncIterator[LoggedLine]:
        async for event in events:
            for line in lines_of(event):
                yield line
        yield await self._last(job_id)

    async def _so_far(self, job_id: str) -> AsyncIterator[LoggedLine]:
        async for event in self._events.past(job_id):
            for line in lines_of(event):
                yield line
        if (await self._jobs.get(job_id)).status.is_terminal:
            yield await self._last(job_id)

    async def _last(self, job_id: str) -> LoggedLine:
        return LoggedLine(f"[Job {(await self._jobs.get(job_id)).status}]")


def lines_of(event: Event) -> list[LoggedLine]:
    """What an event adds to the log; nothing where it is a bookmark."""
    text = _text(event.payload)
    if text is None:
        return []
    time = event.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    first, *others = text.splitlines() or [""]
    return [
        LoggedLine(f"{time} {_printable(first)}", event.cursor),
        *(LoggedLine(f"{_CONTINUED}{_printable(line)}", event.cursor) for line in others),
    ]


def _text(payload: Payload | Bookmark) -> str | None:
    match payload:
        case StatusChanged(status, detail, error):
            told = f"{error.code}: {error.message}" if error else detail
            return f"info {status.value}{f': {told}' if told else ''}"
        case AttemptStarted(attempt, from_step):
            start = f"the checkpoint after step {from_step}" if from_step else "its start"
            return f"info attempt {attempt} begins from {start}"
        case CheckpointSaved(_, step, size_bytes):
            return f"info checkpoint after step {step} ({size_bytes:,} bytes)"
        case Alert(kind, severity, message, _):
            return f"{severity} {kind}: {message}"
        case LogLine(level, message, fields_json):
            return f"{level} {message}{_fields(fields_json)}"
        case StepMetrics(step, _, values) if EVAL_REWARD_MEAN in values:
            return f"info evaluation after step {step} {EVAL_REWARD_MEAN}={_number(values[EVAL_REWARD_MEAN])}"
        case StepMetrics(step, _, values, total_steps):
            shown = [f"{name}={_number(values[name])}" for name in HEADLINE_METRICS if name in values]
            return f"info step {step}{f'/{total_steps}' if total_steps else ''} {' '.join(shown)}".rstrip()
        case _:
            return None


def _fields(fields_json: str) -> str:
    try:
        fields = json.loads(fields_json)
    except ValueError:
        return f" {fields_json}"
    if not isinstance(fields, dict):
        return f" {fields_json}"
    return "".join(
        f" {name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
    )


def _number(value: float) -> str:
    if math.isfinite(value):
        return f"{value:.4g}"
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _printable(line: str) -> str:
    """The line with control characters written out: they could steer the terminal that shows it."""
    return "".join(c if c == "\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in line)
