"""What `--dry-run` prints: a job that was checked, and not queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from plaudit.cli._output import print_json, printable
from plaudit.cli._toml import job_as_toml

if TYPE_CHECKING:
    from plaudit.client import models


def print_checked(job: models.TrainingJob, as_json: bool) -> None:
    """Shows the job with every default, the memory that it takes, and what may go wrong with it."""
    if as_json:
        print_json(job)
        return
    typer.echo(printable(job_as_toml(job.spec)))
    if job.memory is not None or not job.status_detail:
        told = job.memory.describe() if job.memory else "not known before the run has loaded its model"
        typer.echo(printable(f"memory: {told}"))
    if job.status_detail:
        typer.echo(printable(job.status_detail))
    typer.echo("the job is good; nothing was queued")
