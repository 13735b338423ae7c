"""`plaudit job`: submit, list, get, steer, watch, look into, clone, delete, rescore."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plaudit.cli._arguments import JobId, SetOption
from plaudit.cli._checked_job import print_checked
from plaudit.cli._faults import told_with
from plaudit.cli._job_file import read_job_file
from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    connect,
    print_fields,
    print_json,
    print_table,
)
from plaudit.cli.job_clone import clone, delete
from plaudit.cli.job_compare import compare
from plaudit.cli.job_log import events, logs
from plaudit.cli.job_series import completions, metrics
from plaudit.cli.rescore import rescore
from plaudit.errors import FieldViolation
from plaudit.types.metrics import HEADLINE_METRICS
from plaudit.types.statuses import JobStatus

if TYPE_CHECKING:
    from plaudit.client import Client, models
    from plaudit.types.preflight import PreflightReport

app = typer.Typer(help="Training jobs.", no_args_is_help=True)


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="Job file, TOML or JSON; - reads JSON from stdin.")],
    watch: Annotated[bool, typer.Option("--watch", help="Watch the job until it is over.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job is over, then show it; progress on stderr.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the job, and show it with every default filled in.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the job's id, as for a script.")
    ] = False,
    set_fields: SetOption = None,
    preflight: Annotated[
        str | None,
        typer.Option(
            metavar="stop|warn|off",
            help="What critical findings before the first step do. Default: what the file says, or stop.",
        ),
    ] = None,
    request_id: Annotated[
        str | None, typer.Option(help="Makes a repetition return the same job, for 24 hours.")
    ] = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Queue the job of a file.

    Exit status with --watch and --wait: 0 completed, 1 failed or cancelled.
    """
    with connect(address) as client:
        spec = read_job_file(file)
        if preflight is not None and isinstance(spec, dict):
            spec = {**spec, "preflight": preflight}
        wrong: list[FieldViolation] = []
        if set_fields and isinstance(spec, dict):
            from plaudit.cli._overrides import with_overrides

            spec, wrong = with_overrides(spec, set_fields)
        with told_with(wrong):
            job = client.training_jobs.submit(
                spec, request_id=request_id, validate_only=dry_run or bool(wrong)
            )
        if dry_run:
            print_checked(job, as_json)
        elif watch:
            if not as_json:
                typer.echo(f"{job.id} {job.status}")
            raise typer.Exit(_watch(client, job.id, as_json=as_json))
        elif wait:
            from plaudit.cli._watching import wait_for_job

            with _told_how_to_stop(job.id):
                ended = wait_for_job(client, job.id)
            _print_job(ended, as_json)
            raise typer.Exit(0 if ended.status is JobStatus.COMPLETED else 1)
        elif quiet:
            typer.echo(job.id)
        else:
            _print_job(job, as_json)


@app.command("list")
def list_jobs(
    status: Annotated[
        list[JobStatus] | None, typer.Option(help="Only jobs with this status; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most jobs to show.")] = 20,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """List jobs, newest first."""
    with connect(address) as client:
        jobs = list(itertools.islice(client.training_jobs.list(statuses=status or ()), limit))
    if as_json:
        print_json(jobs)
        return
    print_table(
        ("job", "name", "status", "step", "reward", "created"),
        (
            (
                job.id,
                job.spec.output_name,
                job.status,
                f"{job.current_step}/{job.total_steps or '?'}",
                job.metrics.get("reward_mean"),
                job.created_at,
            )
            for job in jobs
        ),
    )


@app.command()
def get(job_id: JobId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Show a job as it stands."""
    with connect(address) as client:
        _print_job(client.training_jobs.get(job_id), as_json)


@app.command()
def watch(
    job_id: JobId,
    after_cursor: Annotated[str, typer.Option(help="Only events after this cursor. Default: all.")] = "",
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Watch a job to its end: a live curve on a terminal, else plain lines; --json: one event a line."""
    with connect(address) as client:
        # A watch waits for a gateway that comes back; one that was never there is told at once.
        client.training_jobs.get(job_id)
        raise typer.Exit(_watch(client, job_id, after_cursor=after_cursor, as_json=as_json))


@app.command()
def pause(
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job is paused, or over.")] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Save a checkpoint at the next generation boundary, and free the trainer.

    Exit status with --wait: 0 paused, 1 over before it could be paused.
    """
    with connect(address) as client:
        job = client.training_jobs.pause(job_id)
        if wait:
            job = job.wait(until={JobStatus.PAUSED})
        _print_job(job, as_json)
    raise typer.Exit(1 if wait and job.status is not JobStatus.PAUSED else 0)


@app.command()
def resume(job_id: JobId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Queue a paused or failed job again, from its newest checkpoint."""
    with connect(address) as client:
        _print_job(client.training_jobs.resume(job_id), as_json)


@app.command()
def cancel(job_id: JobId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Ask a job to stop."""
    with connect(address) as client:
        _print_job(client.training_jobs.cancel(job_id), as_json)


app.command("metrics")(metrics)
app.command("completions")(completions)
app.command("compare")(compare)
app.command("clone")(clone)
app.command("delete")(delete)
app.command("logs")(logs)
app.command("events")(events)
app.command("rescore")(rescore)


def _watch(client: Client, job_id: str, *, after_cursor: str = "", as_json: bool = False) -> int:
    from plaudit.cli._watching import watch_job

    with _told_how_to_stop(job_id):
        return watch_job(client, job_id, after_cursor=after_cursor, as_json=as_json)


@contextmanager
def _told_how_to_stop(job_id: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"not watched any more; to stop the job: plaudit job cancel {job_id}", err=True)
        raise


def _preflight_fields(report: PreflightReport | None) -> dict[str, object]:
    if report is None:
        return {}
    informative = report.informative_group_fraction
    seen = [
        f"{report.completion_count} completions, {report.truncated_count} truncated",
        *(f"{r.name} {r.mean:.3g}" for r in report.rewards if r.mean is not None),
    ]
    if informative is not None:
        seen.append(f"about {informative:.0%} of groups mixed")
    found = {f"preflight {n}": f"{f.severity}: {f.message}" for n, f in enumerate(report.findings, 1)}
    return {"preflight": ", ".join(seen), **found}


def _alert_fields(alerts: Sequence[models.JobAlert]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for number, alert in enumerate(alerts, 1):
        place = f"since step {alert.step}"
        if alert.ended_step is not None:
            place = f"from step {alert.step} to {alert.ended_step}"
        fields[f"alert {number}"] = f"{alert.severity}: {alert.kind} {place}: {alert.message}"
    return fields


def _print_job(job: models.TrainingJob, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    print_fields(
        {
            "job": job.id,
            "name": job.spec.output_name,
            "status": job.status,
            "detail": job.status_detail,
            "error": f"{job.error.code}: {job.error.message}" if job.error else None,
            "step": f"{job.current_step}/{job.total_steps}" if job.total_steps else None,
            "attempt": job.attempt or None,
            "checkpoint": job.latest_checkpoint_id,
            "model": job.spec.base_model,
            "dataset": job.spec.dataset_id,
            "rewards": ", ".join(f"{r.weight:g} {r.name}" for r in job.spec.rewards),
            "created": job.created_at,
            "started": job.started_at,
            "finished": job.finished_at,
            "memory": job.memory.describe() if job.memory else None,
            **_preflight_fields(job.preflight),
            **_alert_fields(job.alerts),
            **{name: job.metrics[name] for name in HEADLINE_METRICS if name in job.metrics},
        }
    )
