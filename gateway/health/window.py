"""The part of a job's series that is judged, moved along step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gateway.health.series import Evaluation, Rows, SeriesView
from gateway.health.setting import JobSetting
from gateway.health.thresholds import HEAD_ROLLOUTS, NON_FINITE_STEPS, TAIL_ROLLOUTS

StepRange: TypeAlias = tuple[int, int]
"""First and last step, both included; empty where the last is below the first."""


class Window:
    """Head, tail and newest steps of a job's series, as far as they have come.

    It holds nothing that is not in the series: one that starts from stored rows is one that saw every step.
    """

    def __init__(self, setting: JobSetting, *, head: Rows = (), tail: Rows = (), steps: Rows = ()) -> None:
        """The rows are those of the ranges below: of `head` and `tail` the first step of each rollout."""
        self._setting = setting
        self._head = list(head)
        self._tail = deque(tail, maxlen=TAIL_ROLLOUTS)
        self._steps = deque(steps, maxlen=NON_FINITE_STEPS)

    @staticmethod
    def head_range(setting: JobSetting, through: int) -> StepRange:
        """The steps of the job's first rollouts, up to the step `through`."""
        return 1, min(through, HEAD_ROLLOUTS * setting.num_iterations)

    @staticmethod
    def tail_range(setting: JobSetting, through: int) -> StepRange:
        """The steps of the newest rollouts, up to the step `through`."""
        rollouts = -(-through // setting.num_iterations)
        return max(0, rollouts - TAIL_ROLLOUTS) * setting.num_iterations + 1, through

    @staticmethod
    def steps_range(through: int) -> StepRange:
        """The newest steps, up to the step `through`."""
        return max(1, through - NON_FINITE_STEPS + 1), through

    @property
    def newest_step(self) -> int:
        """0 before the first one."""
        return self._steps[-1][0] if self._steps else 0

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the next step in."""
        self._steps.append((step, metrics))
        if (step - 1) % self._setting.num_iterations == 0:
            self._tail.append((step, metrics))
            if len(self._head) < HEAD_ROLLOUTS:
                self._head.append((step, metrics))

    def view(
        self, evaluations: Sequence[Evaluation] = (), evaluation: Mapping[str, float] | None = None
    ) -> SeriesView:
        """What there is to judge after the newest step; of an evaluation after it, all so far and its own
        metrics.
        """
        done = self.newest_step - 1
        return SeriesView(
            head=tuple(self._head),
            tail=tuple(self._tail),
            steps=tuple(self._steps),
            evaluations=evaluations,
            evaluation=evaluation or {},
            rollout_count=done // self._setting.num_iterations + 1,
            begins_rollout=done % self._setting.num_iterations == 0,
        )
