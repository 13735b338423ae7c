"""Watching a job: a live curve and a progress bar on a terminal, plain lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plaudit.cli._curve import draw_curve
from plaudit.cli._output import console, plain, printable
from plaudit.client import Client, models
from plaudit.types.metrics import EVAL_REWARD_MEAN, HEADLINE_METRICS, REWARD_MEAN
from plaudit.types.statuses import JobStatus

_CURVE_WIDTH: Final = 60
_CURVE_HEIGHT: Final = 8
_PLAIN_LINES: Final = 20
"""Lines of metrics that a run writes where nothing is a terminal."""


def watch_job(client: Client, job_id: str, *, after_cursor: str = "", as_json: bool = False) -> int:
    """Shows a job's events until it is over. Returns the exit status: 0 completed, 1 failed or cancelled."""
    events = client.training_jobs.watch(job_id, after_cursor=after_cursor)
    view = _JobView(job_id)
    if as_json:
        for event in events:
            view.take(event)
            sys.stdout.write(json.dumps(event_data(event), ensure_ascii=False) + "\n")
            sys.stdout.flush()
    elif sys.stdout.isatty():
        _show_live(events, view)
    else:
        for event in events:
            for line in view.take(event):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    return 0 if view.status is JobStatus.COMPLETED else 1


def wait_for_job(client: Client, job_id: str) -> models.TrainingJob:
    """Waits until a job is over, and tells on stderr how it goes: a line a status, and one now and then."""
    told: set[tuple[str, int]] = set()

    def tell(job: models.TrainingJob) -> None:
        stride = max(1, job.total_steps // _PLAIN_LINES)
        mark = (str(job.status), job.current_step // stride)
        if mark not in told:
            told.add(mark)
            detail = f"  {printable(job.status_detail)}" if job.status_detail else ""
            step = f"  step {job.current_step}/{job.total_steps}" if job.total_steps else ""
            sys.stderr.write(f"{job.id} {job.status}{step}{detail}\n")

    return client.training_jobs.wait(job_id, on_progress=tell)


def event_data(event: models.JobEvent) -> dict[str, object]:
    """An event as one JSON object: cursor, job_id, time, kind, and the fields of its kind."""
    return {
        "cursor": event.cursor,
        "job_id": event.job_id,
        "time": plain(event.time),
        "kind": _KINDS[type(event.body)],
        **plain(event.body),
    }


_KINDS: Final[dict[type, str]] = {
    models.StatusChanged: "status_changed",
    models.StepMetrics: "step_metrics",
    models.CheckpointSaved: "checkpoint_saved",
    models.Alert: "alert",
    models.LogLine: "log_line",
    models.Bookmark: "bookmark",
    models.AttemptStarted: "attempt_started",
}


@dataclass
class _JobView:
    """What is known of a job while its events come in."""

    job_id: str
    status: JobStatus = JobStatus.QUEUED
    detail: str = ""
    attempt: int = 0
    total_steps: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    reward_by_step: dict[int, float] = field(default_factory=dict)

    def take(self, event: models.JobEvent) -> Iterator[str]:
        """Takes an event in, and returns the lines that tell it in plain text."""
        return iter(self._lines(event.body))

    def _lines(self, body: models.EventBody) -> list[str]:
        match body:
            case models.StatusChanged():
                changed = body.status is not self.status
                self.status, self.detail = body.status, body.detail
                error = f": {body.error.code}: {body.error.message}" if body.error else ""
                detail = f" ({body.detail})" if body.detail else ""
                return [printable(f"{body.status}{detail}{error}")] if changed or detail or error else []
            case models.StepMetrics():
                return self._step_lines(body)
            case models.AttemptStarted():
                self.attempt = body.attempt
                for step in [s for s in self.reward_by_step if s > body.from_step]:
                    del self.reward_by_step[step]
                start = f"after step {body.from_step}" if body.from_step else "from the base model"
                return [f"attempt {body.attempt} starts {start}"]
            case models.CheckpointSaved():
                return [f"checkpoint {body.checkpoint_id} saved ({body.size_bytes:,} bytes)"]
            case models.Alert():
                place = f"at step {body.step}" if body.step else "before the first step"
                return [printable(f"{body.severity}: {body.kind} {place}: {body.message}")]
            case models.LogLine():
                return (
                    [printable(f"{body.level}: {body.message}")] if body.level in ("warning", "error") else []
                )
            case models.Bookmark():
                return []

    def _step_lines(self, body: models.StepMetrics) -> list[str]:
        if EVAL_REWARD_MEAN in body.values:
            self.latest[EVAL_REWARD_MEAN] = body.values[EVAL_REWARD_MEAN]
            place = f"after step {body.step}" if body.step else "before the first step"
            return [f"evaluation {place}  {EVAL_REWARD_MEAN} {body.values[EVAL_REWARD_MEAN]:.4g}"]
        self.latest |= body.values
        self.total_steps = body.total_steps or self.total_steps
        if REWARD_MEAN in body.values:
            self.reward_by_step[body.step] = body.values[REWARD_MEAN]
        stride = max(1, self.total_steps // _PLAIN_LINES)
        if body.step % stride and body.step not in (1, self.total_steps):
            return []
        shown = "  ".join(f"{k} {body.values[k]:.4g}" for k in HEADLINE_METRICS if k in body.values)
        return [f"step {body.step}/{self.total_steps or '?'}  {shown}"]

    @property
    def step(self) -> int:
        """Newest step that was seen."""
        return max(self.reward_by_step, default=0)


def _show_live(events: Iterator[models.JobEvent], view: _JobView) -> None:
    out = console()
    with Live(_render(view), console=out, refresh_per_second=8, transient=False) as live:
        for event in events:
            lines = list(view.take(event))
            # First, as what is printed above draws what stands below once more.
            live.update(_render(view))
            if not isinstance(event.body, models.StepMetrics):
                for line in lines:
                    out.print(Text(line, style="dim"))


def _render(view: _JobView) -> RenderableType:
    head = Text.assemble(
        (view.job_id, "bold"),
        "  ",
        (str(view.status), "cyan"),
        f"  attempt {view.attempt}" if view.attempt > 1 else "",
    )
    if view.detail:
        head.append(f"  {printable(view.detail)}", style="yellow")
    progress = Table.grid(padding=(0, 1))
    progress.add_row(
        ProgressBar(total=max(view.total_steps, 1), completed=view.step, width=_CURVE_WIDTH),
        Text(f"step {view.step}/{view.total_steps or '?'}"),
    )
    shown = (*HEADLINE_METRICS, EVAL_REWARD_MEAN)
    figures = Text("  ".join(f"{k} {view.latest[k]:.4g}" for k in shown if k in view.latest))
    points = sorted(view.reward_by_step.items())
    curve = Text(draw_curve(points, width=_CURVE_WIDTH, height=_CURVE_HEIGHT), style="green")
    return Group(head, progress, Text(f"{REWARD_MEAN}", style="bold"), curve, figures)
