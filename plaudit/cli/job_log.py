"""`plaudit job logs` and `plaudit job events`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated

import typer

from plaudit.cli._arguments import JobId
from plaudit.cli._output import AddressOption, JsonOption, connect, print_json, print_table, printable

if TYPE_CHECKING:
    from plaudit.client import models


def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    address: AddressOption = None,
) -> None:
    """Print a job's log."""
    with connect(address) as client:
        for line in client.training_jobs.logs(job_id, follow=follow):
            typer.echo(printable(line))


def events(
    job_id: JobId,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most events to show.")] = 50,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """List what happened to a job but for its steps, newest first."""
    with connect(address) as client:
        found = list(itertools.islice(client.training_jobs.events(job_id), limit))
    if as_json:
        print_json(found)
        return
    print_table(("time", "event", "what"), ((e.time, *_told(e.body)) for e in found))


def _told(body: models.EventBody) -> tuple[str, str]:
    from plaudit.client import models

    match body:
        case models.StatusChanged(status, detail, error):
            told = f"{error.code}: {error.message}" if error else detail
            return "status", f"{status}{f': {told}' if told else ''}"
        case models.CheckpointSaved(checkpoint_id, _, size_bytes):
            return "checkpoint", f"{checkpoint_id} ({size_bytes:,} bytes)"
        case models.AttemptStarted(attempt, from_step):
            return "attempt", f"{attempt}, from {f'step {from_step}' if from_step else 'its start'}"
        case models.Alert(kind, severity, message, _):
            return severity, f"{kind}: {message}"
        case models.LogLine(level, message, _):
            return level, message
        case _:
            return "", ""
