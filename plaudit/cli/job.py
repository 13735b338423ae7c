"""`plaudit job`: submit, list, get, watch, pause, resume, cancel, metrics, completions."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from plaudit.cli._job_file import read_job_file
from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    connect,
    print_fields,
    print_json,
    print_table,
    printable,
)
from plaudit.cli._watching import watch_job
from plaudit.client import Client, models
from plaudit.types.metrics import HEADLINE_METRICS
from plaudit.types.statuses import JobStatus

app = typer.Typer(help="Training jobs.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, job_...")]


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="Job file, TOML or JSON; - reads JSON from stdin.")],
    watch: Annotated[bool, typer.Option("--watch", help="Watch the job until it is over.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the job; queue nothing.")] = False,
    request_id: Annotated[
        str | None, typer.Option(help="Makes a repetition return the same job, for 24 hours.")
    ] = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Queue the job of a file."""
    with connect(address) as client:
        job = client.training_jobs.submit(read_job_file(file), request_id=request_id, validate_only=dry_run)
        if dry_run:
            if as_json:
                print_json(job)
            else:
                typer.echo("the job is good; nothing was queued")
        elif watch:
            if not as_json:
                typer.echo(f"{job.id} {job.status}")
            raise typer.Exit(_watch(client, job.id, as_json=as_json))
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
        raise typer.Exit(_watch(client, job_id, after_cursor=after_cursor, as_json=as_json))


@app.command()
def pause(job_id: JobId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Save a checkpoint at the next generation boundary, and free the trainer."""
    with connect(address) as client:
        _print_job(client.training_jobs.pause(job_id), as_json)


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


@app.command()
def metrics(
    job_id: JobId,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Only this metric; repeatable. Default: the main ones in a table, all in JSON."),
    ] = None,
    from_step: Annotated[int, typer.Option(min=0, help="First step.")] = 0,
    to_step: Annotated[int, typer.Option(min=0, help="Last step. 0: the newest.")] = 0,
    max_points: Annotated[int, typer.Option(min=0, max=5000, help="Most points per metric. 0: 500.")] = 0,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Show metric series."""
    with connect(address) as client:
        series = client.training_jobs.metrics(
            job_id, keys=key or (), from_step=from_step, to_step=to_step, max_points=max_points
        )
    if as_json:
        print_json(series)
        return
    keys = key or [name for name in HEADLINE_METRICS if name in series.available_keys]
    for name in sorted(set(keys) - set(series.available_keys)):
        typer.echo(printable(f"no metric {name} yet; there is {', '.join(series.available_keys)}"), err=True)
    print_table(
        ("step", *keys), ((row.step, *(row.values.get(name) for name in keys)) for row in series.metrics)
    )


@app.command()
def completions(
    job_id: JobId,
    step: Annotated[int, typer.Option(min=0, help="Only this step. 0: all, newest first.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most completions to show.")] = 20,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Show what the policy wrote, with its scores."""
    with connect(address) as client:
        found = list(itertools.islice(client.training_jobs.completions(job_id, step=step), limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ("step", "completion", "reward", "advantage", "text", "not scored"),
        (
            (
                item.step,
                item.completion_id,
                item.reward,
                item.advantage,
                item.completion_text,
                "; ".join(f"{o.name}: {o.status} {o.explanation}" for o in item.outcomes if o.value is None),
            )
            for item in found
        ),
    )


def _watch(client: Client, job_id: str, *, after_cursor: str = "", as_json: bool = False) -> int:
    try:
        return watch_job(client, job_id, after_cursor=after_cursor, as_json=as_json)
    except KeyboardInterrupt:
        typer.echo(f"not watched any more; to stop the job: plaudit job cancel {job_id}", err=True)
        raise


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
            **{name: job.metrics[name] for name in HEADLINE_METRICS if name in job.metrics},
        }
    )
