"""What a trial says against a reward, each finding with the evidence and what to do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from plaudit.trial._asking import Ask, Said, Trial
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored

_TOLERANCE: Final = 1e-9
_SHOWN_CHARACTERS: Final = 300
_MOSTLY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a job would suffer from."""

    kind: str
    message: str


# What python_function says of a failure, to the kinds that people know; the first that fits holds.
_FAILURE_KINDS: Final[tuple[tuple[str, Callable[[Failed], bool]], ...]] = (
    ("timeout", lambda failed: failed.code is FailureCode.TIMEOUT),
    ("missing_column", lambda failed: failed.code is FailureCode.INVALID),
    ("out_of_range", lambda failed: ", outside its declared range " in failed.message),
    ("non_finite", lambda failed: "; a value is finite" in failed.message),
    (
        "wrong_length",
        lambda failed: "; return one for each" in failed.message,
    ),
    ("wrong_type", lambda failed: " returned " in failed.message),
    ("raising", lambda failed: " raised " in failed.message),
    ("broken_limit", lambda failed: True),
)
_FAILURE_ADVICE: Final = {
    "timeout": "bound its work, or raise timeout_seconds",
    "missing_column": "name the columns that the dataset has, or give the parameter a default",
    "non_finite": "return None where the reward does not apply, and raise where it cannot be computed",
    "out_of_range": "scale its values: a job takes nothing beyond a million",
    "wrong_length": "return one value for each completion",
    "wrong_type": "return numbers, or None",
    "raising": "mend it; a completion that fails teaches nothing",
    "broken_limit": "keep within the limits of the sandbox",
}


def findings_of(trial: Trial, slow_seconds: float) -> list[Finding]:
    """Everything that speaks against the reward, the worst first."""
    unsteady = list(_unsteady(trial))
    return [
        *_failures(trial),
        *_failing_together(trial),
        *_nothing_learnt(trial),
        *unsteady,
        # Of scores that change by themselves nothing can be told.
        *(_gamed(trial) if not unsteady else ()),
        *_slow(trial, slow_seconds),
    ]


def value_of(said: Said) -> float | None:
    """The score, or None."""
    return said.outcome.value if isinstance(said.outcome, Scored) else None


def latencies(trial: Trial) -> list[float]:
    """Seconds of completions that were scored one at a time."""
    return sorted(said.seconds for _, said in trial.alone)


def _failures(trial: Trial) -> Iterator[Finding]:
    asked = [
        *zip(trial.asks, trial.first, strict=True),
        *zip(trial.asks, trial.again, strict=True),
        *((Ask(trial.asks[place].row, "(padded)"), said) for place, said in trial.padded),
        *((Ask(row, "(empty)"), said) for row, answers in trial.empty for said in answers),
    ]
    by_kind: dict[str, list[tuple[Ask, Failed]]] = {}
    for ask, said in asked:
        if isinstance(said.outcome, Failed):
            by_kind.setdefault(_kind_of(said.outcome), []).append((ask, said.outcome))
    for kind, found in by_kind.items():
        ask, failed = found[0]
        yield Finding(
            kind,
            f"{len(found)} of {len(asked)} scorings failed; in line {ask.row.line}: {_cut(failed.message)} "
            f"({_FAILURE_ADVICE[kind]})",
        )


def _failing_together(trial: Trial) -> Iterator[Finding]:
    # One that fails by itself fails the call that it is in: then the others there say nothing.
    if any(isinstance(said.outcome, Failed) for said in trial.first):
        return
    found = [
        (ask, said.outcome)
        for ask, said in zip(trial.asks, trial.together, strict=bool(trial.together))
        if isinstance(said.outcome, Failed)
    ]
    if found:
        ask, failed = found[0]
        kind = _kind_of(failed)
        yield Finding(
            kind,
            f"{len(found)} of {len(trial.asks)} completions fail where several are in a call (batch_size); "
            f"in line {ask.row.line}: {_cut(failed.message)} ({_FAILURE_ADVICE[kind]})",
        )


def _kind_of(failed: Failed) -> str:
    return next(kind for kind, fits in _FAILURE_KINDS if fits(failed))


def _nothing_learnt(trial: Trial) -> Iterator[Finding]:
    values = [value for said in trial.first if (value := value_of(said)) is not None]
    if not values:
        if all(isinstance(said.outcome, NotApplicable) for said in trial.first):
            yield Finding(
                "not_applicable", "it returned None for every completion: a job would learn nothing"
            )
        return
    if len(values) < 2:
        return
    if max(values) - min(values) <= _TOLERANCE:
        yield Finding(
            "constant",
            f"all {len(values)} scores are {values[0]:g}: a job would learn nothing. If it compares the "
            "completions of a call with one another, set batch_size",
        )
    elif len(values) == len(trial.first) and all(spread <= _TOLERANCE for spread in spreads(trial)):
        yield Finding(
            "no_spread",
            "completions of one prompt all have one score: GRPO compares them with one another, and would "
            "learn nothing",
        )


def spreads(trial: Trial) -> list[float]:
    """Standard deviation within each row that has two scores or more."""
    by_row: dict[int, list[float]] = {}
    for ask, said in zip(trial.asks, trial.first, strict=True):
        value = value_of(said)
        if value is not None:
            by_row.setdefault(ask.row.line, []).append(value)
    return [statistics.stdev(values) for values in by_row.values() if len(values) > 1]


def _unsteady(trial: Trial) -> Iterator[Finding]:
    changed = _changed(trial.first, trial.again)
    if changed:
        place = changed[0]
        yield Finding(
            "non_deterministic",
            f"{len(changed)} of {len(trial.first)} completions were scored otherwise the second time, in "
            f"another order; in line {trial.asks[place].row.line}: {_told(trial.first[place])}, then "
            f"{_told(trial.again[place])}",
        )
        return
    changed = _changed(trial.first, trial.together) if trial.together else []
    # A call that fails, fails all that are in it, and may hold just one of them.
    changed = [place for place in changed if _both_scored(trial.first[place], trial.together[place])]
    if changed:
        place = changed[0]
        yield Finding(
            "depends_on_company",
            f"{len(changed)} of {len(trial.first)} completions are scored otherwise where several are in a "
            f"call; in line {trial.asks[place].row.line}: {_told(trial.first[place])}, then "
            f"{_told(trial.together[place])}. Which are together in a job is not fixed",
        )


def _changed(first: Sequence[Said], second: Sequence[Said]) -> list[int]:
    places = []
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        before, after = value_of(one), value_of(other)
        if type(one.outcome) is not type(other.outcome) or (
            before is not None and after is not None and not math.isclose(before, after, abs_tol=_TOLERANCE)
        ):
            places.append(place)
    return places


def _both_scored(one: Said, other: Said) -> bool:
    return isinstance(one.outcome, Scored) and isinstance(other.outcome, Scored)


def _gamed(trial: Trial) -> Iterator[Finding]:
    pairs = [
        (before, after)
        for place, said in trial.padded
        if (before := value_of(trial.first[place])) is not None and (after := value_of(said)) is not None
    ]
    risen = [(before, after) for before, after in pairs if after > before + _TOLERANCE]
    if risen and len(risen) > _MOSTLY * len(pairs):
        before, after = risen[0]
        yield Finding(
            "length_gamed",
            f"{len(risen)} of {len(pairs)} completions are worth more with empty words after them, one "
            f"{before:g} before and {after:g} after: a policy would learn to write more",
        )
    real = [
        value
        for ask, said in zip(trial.asks, trial.first, strict=True)
        if ask.text.strip() and (value := value_of(said)) is not None
    ]
    empty = [value for _, answers in trial.empty for said in answers if (value := value_of(said)) is not None]
    if real and empty and max(real) - min(real) > _TOLERANCE:
        best = max(empty)
        if statistics.fmean(empty) >= statistics.fmean(real) or best >= max(real):
            yield Finding(
                "empty_answer_friendly",
                f'answers such as "" and ":" score {statistics.fmean(empty):.4g} on average and up to '
                f"{best:g}, completions {statistics.fmean(real):.4g} and up to {max(real):g}: a policy would "
                "learn to say nothing",
            )


def _slow(trial: Trial, slow_seconds: float) -> Iterator[Finding]:
    seconds = latencies(trial)
    if seconds and statistics.median(seconds) > slow_seconds:
        yield Finding(
            "slow",
            f"a completion takes {statistics.median(seconds):.3g} s (median of {len(seconds)}), more than "
            f"{slow_seconds:g} s (--slow): a step waits for the scores of all its completions",
        )


def _told(said: Said) -> str:
    value = value_of(said)
    if value is not None:
        return f"{value:g}"
    return "not applicable" if isinstance(said.outcome, NotApplicable) else "failed"


def _cut(text: str) -> str:
    text = " | ".join(line.strip() for line in text.splitlines())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
