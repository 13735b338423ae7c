"""`plaudit job metrics` and `plaudit job completions`."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from plaudit.cli._arguments import JobId
from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    connect,
    plain,
    print_json,
    print_table,
    printable,
)
from plaudit.errors import InvalidArgumentError
from plaudit.types.metrics import EVAL_REWARD_MEAN, HEADLINE_METRICS

if TYPE_CHECKING:
    from plaudit.client import models

KeysOption = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Only these metrics. Default: the main ones in a table, else all."),
]


def metrics(
    job_id: JobId,
    keys: KeysOption = None,
    key: Annotated[list[str] | None, typer.Option(help="Only this metric; repeatable.")] = None,
    from_step: Annotated[int, typer.Option(min=0, help="First step.")] = 0,
    to_step: Annotated[
        int | None,
        typer.Option(min=0, help="Last step. 0: the evaluation before the first. Default: the newest."),
    ] = None,
    max_points: Annotated[int, typer.Option(min=0, max=5000, help="Most points per metric. 0: 500.")] = 0,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row a step.")] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Show metric series."""
    if as_csv and as_json:
        raise InvalidArgumentError.of("--csv", "goes not with --json; name one of them")
    names = [*(key or ()), *chosen_keys(keys)]
    with connect(address) as client:
        series = client.training_jobs.metrics(
            job_id, keys=names, from_step=from_step, to_step=to_step, max_points=max_points
        )
    for name in sorted(set(names) - set(series.available_keys)):
        known = ", ".join(series.available_keys) or "none of any name"
        typer.echo(printable(f"no metric {name} yet; there is {known}"), err=True)
    if not (series.available_keys or names or as_json or as_csv):
        typer.echo("no metrics yet: no step is complete", err=True)
    if as_json:
        print_json(series)
    elif as_csv:
        _print_csv(series, names or series.available_keys)
    else:
        main = (*HEADLINE_METRICS, EVAL_REWARD_MEAN)
        shown = names or [name for name in main if name in series.available_keys]
        print_table(
            ("step", *shown),
            ((row.step, *(row.values.get(name) for name in shown)) for row in series.metrics),
        )


def completions(
    job_id: JobId,
    step: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Only this step; with --evaluations 0 is the one before it all. Default: all, newest first.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most completions to show.")] = 20,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only those that could not be scored, and so moved nothing.")
    ] = False,
    evaluations: Annotated[
        bool, typer.Option("--evaluations", help="Those of evaluations, instead of those learnt from.")
    ] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Show what the policy wrote, with its scores."""
    with connect(address) as client:
        found = client.training_jobs.completions(job_id, step=step, evaluations=evaluations)
        shown = list(itertools.islice((c for c in found if c.reward is None or not failed), limit))
    if as_json:
        print_json(shown)
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
            for item in shown
        ),
    )


def chosen_keys(keys: str | None) -> list[str]:
    """The names in a list with commas."""
    return [name for part in (keys or "").split(",") if (name := part.strip())]


def _print_csv(series: models.MetricSeries, names: Sequence[str]) -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("step", "attempt", *names))
    for row in series.metrics:
        # A step without a value has an empty cell, which is not 0; NaN and infinities are written as in JSON.
        table.writerow((row.step, row.attempt, *(plain(row.values.get(name)) for name in names)))
