"""What a detector finds, and the episode that it opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.health.series import SeriesView
from gateway.health.setting import JobSetting
from plaudit.types.alerts import AlertKind
from plaudit.types.preflight import Severity

SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
"""From harmless to bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure mode that the series show now. `subject` is the reward that it is of, "" for the whole job.

    `seen` says what, with numbers and steps; `advice` what to try, for people.
    """

    kind: AlertKind
    severity: Severity
    seen: str
    advice: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    subject: str = ""

    @property
    def message(self) -> str:
        """What was seen and what to try, in one line."""
        return f"{self.seen}; {self.advice}"


@dataclass(frozen=True, slots=True)
class Episode:
    """An alert that was raised and is not over: nothing is told of it again unless it becomes worse."""

    kind: str
    subject: str
    severity: Severity
    evidence: Mapping[str, float]


Find: TypeAlias = Callable[[SeriesView, JobSetting], Sequence[Finding]]
IsOver: TypeAlias = Callable[[SeriesView, JobSetting, Episode], bool]


@dataclass(frozen=True, slots=True)
class Detector:
    """Finds one failure mode of a job, and says when an episode of it is over.

    `of_rollouts`: it looks at what was sampled, so that it has nothing new to judge on the later steps of a
    rollout.
    """

    kind: AlertKind
    find: Find
    is_over: IsOver
    of_rollouts: bool = True
