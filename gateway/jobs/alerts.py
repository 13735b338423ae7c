"""Watches the series of a job as steps and evaluations come in: raises alerts, ends them, stops the job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from gateway.events import Alert, LogLine
from gateway.health import (
    BLOCK_ROLLOUTS,
    Episode,
    Evaluation,
    Finding,
    JobSetting,
    Rows,
    Verdict,
    Window,
    judge,
    judge_evaluation,
    setting_of,
    watched_metrics,
)
from gateway.jobs import lifecycle
from gateway.jobs.job import JobAlert
from gateway.store import Session
from gateway.store.attempts import Segment
from gateway.store.jobs import JobRecord
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.metrics import EVAL_REWARD_MEAN, REWARD_MEAN

_EVALUATIONS: Final = 32
"""Newest evaluations that are judged together."""


class AlertWatch:
    """Judges each step of the run that a job goes by, within the transaction that stores it.

    What it knows is read from the store, once for each batch of entries: a gateway that was killed goes on
    with the same alerts, and tells none of them twice.
    """

    def __init__(self, session: Session, job_key: int) -> None:
        self._session = session
        self._job_key = job_key
        self._line: Sequence[Segment] = ()
        self._window: Window | None = None

    async def after_step(
        self, record: JobRecord, step: int, metrics: Mapping[str, float], time: datetime
    ) -> JobRecord:
        """Judges the series after `step`, whose metrics these are; returns the job as it is then."""
        setting = setting_of(record.job.spec)
        if self._window is None or self._window.newest_step != step - 1:
            self._window = await self._read_window(setting, step - 1)
        self._window.add(step, metrics)
        going_on = await self._session.alerts.going_on(self._job_key)
        verdict = judge(self._window.view(), setting, _episodes(going_on))
        return await self._tell(record, verdict, going_on, step, time)

    async def after_evaluation(
        self, record: JobRecord, step: int, metrics: Mapping[str, float], time: datetime
    ) -> JobRecord:
        """Judges the evaluation after `step`, whose metrics these are and are stored; returns the job as
        it is then.
        """
        setting = setting_of(record.job.spec)
        if not setting.is_grpo:
            return record
        if self._window is None or self._window.newest_step != step:
            self._window = await self._read_window(setting, step)
        view = self._window.view(await self._evaluations(setting, step), metrics)
        going_on = await self._session.alerts.going_on(self._job_key)
        verdict = judge_evaluation(view, setting, _episodes(going_on))
        return await self._tell(record, verdict, going_on, step, time)

    async def _tell(
        self,
        record: JobRecord,
        verdict: Verdict,
        going_on: Sequence[JobAlert],
        step: int,
        time: datetime,
    ) -> JobRecord:
        for episode in verdict.ended:
            await self._end(record, episode, step, time)
        for finding in verdict.raised:
            was_bad = any(
                (alert.kind, alert.subject) == (finding.kind, finding.subject) and alert.severity != "info"
                for alert in going_on
            )
            record = await self._raise(record, finding, step, time, stops=not was_bad)
        return record

    async def _raise(
        self, record: JobRecord, finding: Finding, step: int, time: datetime, *, stops: bool
    ) -> JobRecord:
        job = record.job
        evidence = {name: value for name, value in finding.evidence.items() if math.isfinite(value)}
        alert = JobAlert(
            finding.kind, finding.subject, finding.severity, finding.message, evidence, step, time
        )
        await self._session.alerts.note(record.key, alert)
        await self._session.events.append(
            record.key, job.id, Alert(alert.kind, alert.severity, alert.message, step, evidence), time
        )
        h = job.spec.hyperparameters
        stop_on = h.stop_on if isinstance(h, GrpoHyperparameters) else ()
        if not (stops and finding.kind in stop_on and finding.severity != "info"):
            return record
        reason = f"stopped on {finding.kind} at step {step}: {finding.seen}"
        return await lifecycle.save(self._session, record, lifecycle.stopped(record, reason, time), time)

    async def _end(self, record: JobRecord, episode: Episode, step: int, time: datetime) -> None:
        await self._session.alerts.end(record.key, episode.kind, episode.subject, step)
        of_subject = f" of {episode.subject}" if episode.subject else ""
        line = f"the alert {episode.kind}{of_subject} is over: the metrics up to step {step} show it no more"
        await self._session.events.append(record.key, record.job.id, LogLine("info", line), time)

    async def _read_window(self, setting: JobSetting, through: int) -> Window:
        self._line = await self._session.runs.line(self._job_key)
        every = setting.num_iterations
        return Window(
            setting,
            head=await self._rows(setting, Window.head_range(setting, through), every),
            tail=await self._rows(setting, Window.tail_range(setting, through), every),
            steps=await self._rows(setting, Window.steps_range(through), 1),
        )

    async def _rows(self, setting: JobSetting, steps: tuple[int, int], every: int) -> Rows:
        return await self._session.step_rows.read(
            self._job_key,
            watched_metrics(setting),
            self._line,
            first=steps[0],
            last=steps[1],
            every=every,
        )

    async def _evaluations(self, setting: JobSetting, step: int) -> Sequence[Evaluation]:
        """The newest evaluations up to that after `step`; those of which nothing was scored, or before which
        nothing was, are left out.
        """
        points = await self._session.points.series(
            self._job_key, EVAL_REWARD_MEAN, self._line, from_step=1, to_step=step, max_points=5000
        )
        newest = [point for point in points if math.isfinite(point.value)][-_EVALUATIONS:]
        return [
            Evaluation(point.step, point.value, trained)
            for point in newest
            if (trained := await self._trained_up_to(point.step, setting)) is not None
        ]

    async def _trained_up_to(self, step: int, setting: JobSetting) -> float | None:
        """Mean reward of the rollouts up to `step`; None where nothing of them was scored."""
        first = max(1, step - BLOCK_ROLLOUTS * setting.num_iterations + 1)
        rows = await self._session.step_rows.read(
            self._job_key,
            [REWARD_MEAN],
            self._line,
            first=first,
            last=step,
            every=setting.num_iterations,
        )
        values = [row[REWARD_MEAN] for _, row in rows if math.isfinite(row[REWARD_MEAN])]
        return sum(values) / len(values) if values else None


def _episodes(alerts: Sequence[JobAlert]) -> list[Episode]:
    return [Episode(alert.kind, alert.subject, alert.severity, alert.evidence) for alert in alerts]
