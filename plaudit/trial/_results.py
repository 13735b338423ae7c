"""What a trial of a reward function comes to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plaudit.trial._asking import Trial
from plaudit.trial._findings import Finding, latencies, spreads, value_of
from plaudit.types.scoring import Failed, NotApplicable


@dataclass(frozen=True, slots=True)
class TriedRow:
    """A row, by its line in the file, and what its completions scored; None where too few did.

    `completions` are its own, or probes: texts of ours, as the row brought none.
    """

    line: int
    completions: Literal["own", "probes"]
    count: int
    not_applicable: int
    failed: int
    min: float | None
    mean: float | None
    max: float | None
    std: float | None


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """The first scoring of all completions, and how long those took that were scored one at a time."""

    completions: int
    scored: int
    not_applicable: int
    failed: int
    mean: float | None
    std_within_prompts: float | None
    latency_median_seconds: float | None
    latency_max_seconds: float | None
    completions_per_second: float | None


@dataclass(frozen=True, slots=True)
class RewardTrial:
    """What speaks against a reward function (`findings`, the worst first; none: nothing), and what was seen.

    `prints` are the lines that it printed. Where it could not be loaded there are no rows.
    """

    file: str
    rows: tuple[TriedRow, ...]
    summary: TrialSummary
    findings: tuple[Finding, ...]
    prints: tuple[str, ...]


def results_of(file: str, trial: Trial, findings: Sequence[Finding], prints: Sequence[str]) -> RewardTrial:
    """A trial, worked out."""
    return RewardTrial(file, tuple(_rows(trial)), _summary(trial), tuple(findings), tuple(prints))


def _rows(trial: Trial) -> list[TriedRow]:
    by_line: dict[int, list[int]] = {}
    for place, ask in enumerate(trial.asks):
        by_line.setdefault(ask.row.line, []).append(place)
    rows = []
    for line, places in by_line.items():
        said = [trial.first[place] for place in places]
        scores = [value for one in said if (value := value_of(one)) is not None]
        rows.append(
            TriedRow(
                line=line,
                completions="probes" if trial.asks[places[0]].row.are_probes else "own",
                count=len(places),
                not_applicable=sum(isinstance(one.outcome, NotApplicable) for one in said),
                failed=sum(isinstance(one.outcome, Failed) for one in said),
                min=min(scores, default=None),
                mean=statistics.fmean(scores) if scores else None,
                max=max(scores, default=None),
                std=statistics.stdev(scores) if len(scores) > 1 else None,
            )
        )
    return rows


def _summary(trial: Trial) -> TrialSummary:
    scores = [value for said in trial.first if (value := value_of(said)) is not None]
    seconds = latencies(trial)
    within = spreads(trial)
    return TrialSummary(
        completions=len(trial.asks),
        scored=len(scores),
        not_applicable=sum(isinstance(said.outcome, NotApplicable) for said in trial.first),
        failed=sum(isinstance(said.outcome, Failed) for said in trial.first),
        mean=statistics.fmean(scores) if scores else None,
        std_within_prompts=statistics.fmean(within) if within else None,
        latency_median_seconds=statistics.median(seconds) if seconds else None,
        latency_max_seconds=max(seconds, default=None),
        completions_per_second=len(trial.asks) / trial.seconds if trial.seconds else None,
    )
