"""`plaudit job compare`: where jobs differ in what was asked, and in what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from plaudit.cli._arguments import JobIds
from plaudit.cli._curve import draw_overlaid
from plaudit.cli._output import AddressOption, JsonOption, connect, plain, print_json, print_table, printable
from plaudit.cli.job_series import KeysOption, chosen_keys
from plaudit.errors import InvalidArgumentError, NotFoundError
from plaudit.types.metrics import HEADLINE_METRICS, REWARD_MEAN

if TYPE_CHECKING:
    from plaudit.client import Client, models

_MARKS: Final = "abcdefghij"
_MOST_POINTS: Final = 5000
_CURVE_WIDTH: Final = 64
_CURVE_HEIGHT: Final = 12


@dataclass(frozen=True, slots=True)
class Course:
    """How a metric went in a job. `best` is the largest value, for rewards; of others nobody can tell."""

    first: float
    last: float
    smallest: float
    largest: float
    best: float | None


def compare(
    jobs: JobIds,
    keys: KeysOption = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Compare jobs: what was asked for differently, how the metrics went, and their curves on common axes."""
    if not 2 <= len(jobs) <= len(_MARKS) or len(set(jobs)) < len(jobs):
        raise InvalidArgumentError.of(
            "JOB", f"{len(set(jobs))} different jobs are named; name 2 to {len(_MARKS)}, each once"
        )
    with connect(address) as client:
        found = _all_of(client, jobs)
        series = [_series(client, job_id, chosen_keys(keys)) for job_id in jobs]
    names = chosen_keys(keys) or [n for n in HEADLINE_METRICS if any(s.series(n) for s in series)]
    differences = dict(_differences([dict(_flat(plain(job.spec))) for job in found]))
    courses = {name: [course_of(name, each.series(name)) for each in series] for name in names}
    if as_json:
        print_json(
            {
                "jobs": [
                    {"id": job.id, "output_name": job.spec.output_name, "status": job.status} for job in found
                ],
                "differences": differences,
                "metrics": courses,
                "curves": {name: [each.series(name) for each in series] for name in names},
            }
        )
        return
    _show(found, differences, courses, series)


def course_of(name: str, points: Sequence[tuple[int, float]]) -> Course | None:
    """How a metric went, or None where there is not a value of it."""
    values = [value for _, value in points]
    if not values:
        return None
    # NaN is neither small nor large; a series of nothing else has it everywhere.
    numbers = [value for value in values if value == value] or values
    is_reward = name == REWARD_MEAN or (name.startswith("reward/") and name.endswith("/mean"))
    return Course(
        first=values[0],
        last=values[-1],
        smallest=min(numbers),
        largest=max(numbers),
        best=max(numbers) if is_reward else None,
    )


def _all_of(client: Client, job_ids: Sequence[str]) -> Sequence[models.TrainingJob]:
    """The jobs, or NotFoundError with every one that is not there."""
    found = []
    missing = []
    for job_id in job_ids:
        try:
            found.append(client.training_jobs.get(job_id))
        except NotFoundError as error:
            missing.append(error.message)
    if missing:
        raise NotFoundError("\n".join(missing))
    return found


def _series(client: Client, job_id: str, keys: Sequence[str]) -> models.MetricSeries:
    return client.training_jobs.metrics(job_id, keys=keys or HEADLINE_METRICS, max_points=_MOST_POINTS)


def _flat(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of JSON-like data by path, as in `--set`."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, value


def _differences(specs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    for field in dict.fromkeys(name for spec in specs for name in spec):
        values = [spec.get(field) for spec in specs]
        if any(value != values[0] for value in values):
            yield field, values


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _show(
    jobs: Sequence[models.TrainingJob],
    differences: Mapping[str, Sequence[Any]],
    courses: Mapping[str, Sequence[Course | None]],
    series: Sequence[models.MetricSeries],
) -> None:
    marks = _MARKS[: len(jobs)]
    print_table(
        ("", "job", "name", "status", "step"),
        (
            (mark, job.id, job.spec.output_name, job.status, f"{job.current_step}/{job.total_steps or '?'}")
            for mark, job in zip(marks, jobs, strict=True)
        ),
    )
    typer.echo("")
    if differences:
        print_table(
            ("field", *marks),
            (
                (field, *("" if v is None else str(v) for v in values))
                for field, values in differences.items()
            ),
        )
    else:
        typer.echo("the jobs were asked for alike")
    typer.echo("")
    print_table(
        ("metric", "", "first", "last", "best", "smallest", "largest"),
        (
            (name, mark, c.first, c.last, c.best, c.smallest, c.largest)
            for name, of_jobs in courses.items()
            for mark, c in zip(marks, of_jobs, strict=True)
            if c is not None
        ),
    )
    for name in courses:
        curves = [each.series(name) for each in series]
        if any(curves):
            typer.echo(f"\n{printable(name)}")
            typer.echo(draw_overlaid(curves, marks, width=_CURVE_WIDTH, height=_CURVE_HEIGHT))
