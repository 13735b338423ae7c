"""Numbers that are none: steps that were skipped because the loss or the gradient was not finite."""

from __future__ import annotations

from typing import Final

from gateway.health import thresholds as at
from gateway.health.findings import Detector, Episode, Finding
from gateway.health.series import Rows, SeriesView
from gateway.health.setting import JobSetting
from plaudit.types import metrics as names


def _bad_steps(rows: Rows) -> list[int]:
    return [step for step, row in rows if row.get(names.STEP_NOT_FINITE, 0.0) == 1.0]


def _find(view: SeriesView, setting: JobSetting) -> list[Finding]:
    bad = _bad_steps(view.steps)
    if not bad:
        return []
    is_many = len(bad) >= at.NON_FINITE_MANY
    if is_many:
        seen = (
            f"{len(bad)} of the last {len(view.steps)} steps, from step {bad[0]} to step {bad[-1]}, were "
            "skipped because the loss, the gradient or a logit was not finite"
        )
    else:
        seen = (
            f"step {bad[-1]} was skipped because the loss, the gradient or a logit was not finite; weights "
            "and optimizer are as before it"
        )
    return [
        Finding(
            "non_finite",
            "critical" if is_many else "warning",
            seen,
            "if it happens again try a lower learning_rate, a lower max_grad_norm, warmup_steps, or dtype "
            "float32",
            {"skipped_steps": float(len(bad)), "last_skipped_step": float(bad[-1])},
        )
    ]


def _is_over(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    return not _bad_steps(view.steps)


NON_FINITE: Final = Detector("non_finite", _find, _is_over, of_rollouts=False)
