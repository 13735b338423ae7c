"""`plaudit job clone` and `plaudit job delete`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plaudit.cli._arguments import JobId, SetOption
from plaudit.cli._checked_job import print_checked
from plaudit.cli._faults import told_with
from plaudit.cli._output import AddressOption, JsonOption, connect, print_json, printable
from plaudit.errors import FieldViolation


def clone(
    job_id: JobId,
    set_fields: SetOption = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="base|latest|STEP",
            help="Start from the base model, or from a checkpoint of the job. Default: as the job did.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the job, and show it with every default filled in.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the new job's id, as for a script.")
    ] = False,
    request_id: Annotated[
        str | None, typer.Option(help="Makes a repetition return the same job, for 24 hours.")
    ] = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Queue a job as another one, but for some fields."""
    overrides: dict[str, Any] = {}
    if start is not None:
        overrides["resume_from"] = (
            None if start == "base" else job_id if start == "latest" else f"{job_id}@{start}"
        )
    with connect(address) as client:
        wrong: list[FieldViolation] = []
        if set_fields:
            from plaudit.cli._overrides import with_overrides

            cloned = client.training_jobs.get(job_id).spec.model_dump(mode="json")
            overrides, wrong = with_overrides(overrides, set_fields, of=cloned)
        with told_with(wrong):
            job = client.training_jobs.clone(
                job_id, overrides, request_id=request_id, validate_only=dry_run or bool(wrong)
            )
    if dry_run:
        print_checked(job, as_json)
    elif as_json:
        print_json(job)
    else:
        typer.echo(job.id if quiet else f"{job.id} {job.status}")


def delete(job_id: JobId, address: AddressOption = None) -> None:
    """Delete a job that is over, with its checkpoints, completions and rescores."""
    with connect(address) as client:
        client.training_jobs.delete(job_id)
    typer.echo(printable(f"{job_id} is deleted"))
