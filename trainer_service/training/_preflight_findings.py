"""What a preflight saw becomes findings: what is wrong, with numbers, and what to change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.preflight import PreflightFinding, Severity
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Outcome, Scored
from trainer_service.training._preflight_groups import group_size_for, informative_fraction

FEW_INFORMATIVE: Final = 0.4
"""Below this share of groups that teach something, a warning says so."""

_MANY: Final = 0.5
"""Share of completions from which on truncated or empty ones are worth a warning."""

_SLOW_SECONDS: Final = 5.0
_SLOW_RATIO: Final = 2.0
_TOO_SLOW_SECONDS: Final = 60.0
_TOO_SLOW_RATIO: Final = 10.0
"""Scoring a step is slow, or too slow, where it takes so long, and so many times as long as sampling it."""

_LARGEST_GROUP: Final = 64
_QUOTED_LENGTH: Final = 300

_SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class RewardSeen:
    """What a preflight saw of one reward: outcomes of completions, and of texts whose worth is known.

    `low` and `high` are the values that its server promises, None where it promises none. `canaries` holds
    the outcomes of texts that say nothing, by text. `seconds` are those after which each outcome came, from
    the sending of all.
    """

    name: str
    low: float | None
    high: float | None
    samples: Sequence[Outcome]
    good: Sequence[Outcome]
    bad: Sequence[Outcome]
    canaries: Mapping[str, Sequence[Outcome]]
    examples_problem: str
    seconds: Sequence[float]

    @property
    def values(self) -> list[float]:
        """Scores of the base model's completions."""
        return values_of(self.samples)

    @property
    def is_constant(self) -> bool:
        """Whether every completion got the same score."""
        return bool(self.values) and len(set(self.values)) == 1

    @property
    def is_penalty(self) -> bool:
        """Whether its best value is to take nothing away."""
        return self.high is not None and self.high <= 0.0


@dataclass(frozen=True, slots=True)
class RunSeen:
    """What a preflight saw of a run. `sums_by_prompt`: the weighted sums of each prompt's completions."""

    rewards: Sequence[RewardSeen]
    completion_count: int
    truncated_count: int
    empty_count: int
    non_finite_count: int
    has_chat_template: bool
    rollout_seconds: float
    sums_by_prompt: Sequence[Sequence[float]]


def find(seen: RunSeen, hyperparameters: GrpoHyperparameters) -> tuple[PreflightFinding, ...]:
    """All findings, the worst first."""
    findings = [*_about_completions(seen, hyperparameters)]
    varying = sum(len(set(reward.values)) > 1 for reward in seen.rewards)
    for reward in seen.rewards:
        failing = list(_failing(reward, hyperparameters.max_unscored_fraction))
        findings.extend(failing)
        constant = None
        if reward.is_constant:
            constant = _constant(reward, others_vary=varying > 0)
        if constant is not None:
            findings.append(constant)
        if constant is None or constant.kind != "constant_reward":
            findings.extend(_bad_pays(reward))
        findings.extend(_slow(reward, seen, hyperparameters.global_batch_size))
    if varying:
        findings.extend(_uninformative(seen, hyperparameters.rollouts_per_prompt))
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def values_of(outcomes: Sequence[Outcome]) -> list[float]:
    """The values of those that were scored."""
    return [outcome.value for outcome in outcomes if isinstance(outcome, Scored)]


def mean_of(outcomes: Sequence[Outcome]) -> float | None:
    """The mean of those that were scored; None where there is none."""
    values = values_of(outcomes)
    return fmean(values) if values else None


def seconds_per_step(reward: RewardSeen, batch_size: int) -> float | None:
    """Estimated time to score `batch_size` completions: the first answer's, and the pace of the others.

    A server that works on all at once answers all of them together; one that takes them in turn goes on at
    the pace that was seen.
    """
    if not reward.seconds:
        return None
    first, last, count = min(reward.seconds), max(reward.seconds), len(reward.seconds)
    return first if count == 1 else first + (batch_size - 1) * (last - first) / (count - 1)


def _about_completions(seen: RunSeen, h: GrpoHyperparameters) -> Iterator[PreflightFinding]:
    count = seen.completion_count
    if seen.non_finite_count:
        yield PreflightFinding(
            kind="non_finite_model",
            severity="critical",
            seen=f"the base model's logits were not finite in {seen.non_finite_count} of {count} completions",
            advice="check the weights of base_model, or try dtype float32",
            evidence={"non_finite": seen.non_finite_count, "completions": count},
        )
    if seen.truncated_count >= _MANY * count:
        every = seen.truncated_count == count
        template = (
            "check that the chat template ends turns with an end token that the model was trained on"
            if seen.has_chat_template
            else "its tokenizer has no chat template, so that nothing tells it where a turn ends: take a "
            "model that has one, or prompts that it has learnt to finish"
        )
        yield PreflightFinding(
            kind="truncated",
            severity="critical" if every else "warning",
            seen=f"{'all' if every else seen.truncated_count} of {count} completions were cut at "
            f"max_response_length ({h.max_response_length} tokens) before they ended",
            advice=f"raise max_response_length, or, where the model never ends its turn, {template}",
            evidence={"truncated": seen.truncated_count, "completions": count},
        )
    if seen.empty_count >= _MANY * count:
        every = seen.empty_count == count
        yield PreflightFinding(
            kind="empty_completions",
            severity="critical" if every else "warning",
            seen=f"{'all' if every else seen.empty_count} of {count} completions hold no visible text",
            advice="the model ends its turn at once: check the form of the prompts, and that base_model was "
            "trained to follow instructions",
            evidence={"empty": seen.empty_count, "completions": count},
        )


def _failing(reward: RewardSeen, tolerated: float) -> Iterator[PreflightFinding]:
    outcomes = [*reward.samples, *reward.good, *reward.bad, *(o for c in reward.canaries.values() for o in c)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    of_samples = sum(isinstance(outcome, Failed) for outcome in reward.samples)
    if failures:
        codes = Counter(failure.code for failure in failures)
        code = codes.most_common(1)[0][0]
        message = Counter(f.message for f in failures if f.code is code).most_common(1)[0][0]
        exhausted = FailureCode.EXHAUSTED in codes
        stops = exhausted or of_samples > tolerated * len(reward.samples)
        yield PreflightFinding(
            kind="failing_reward",
            severity="critical" if stops else "warning",
            reward=reward.name,
            seen=f"reward {reward.name} failed for {of_samples} of {len(reward.samples)} completions and "
            f"{len(failures) - of_samples} of {len(outcomes) - len(reward.samples)} known texts: {code}: "
            f"{_quoted(message)}",
            advice=_WAYS_OUT[FailureCode.EXHAUSTED if exhausted else code],
            evidence={"failed": of_samples, "completions": len(reward.samples)}
            | {f"failed_{code}": count for code, count in codes.items()},
        )
    if reward.samples and all(isinstance(outcome, NotApplicable) for outcome in reward.samples):
        yield PreflightFinding(
            kind="not_applicable",
            severity="warning",
            reward=reward.name,
            seen=f"reward {reward.name} applies to none of {len(reward.samples)} completions",
            advice="check the columns that it reads, or leave it out",
            evidence={"completions": len(reward.samples)},
        )
    if reward.examples_problem:
        yield PreflightFinding(
            kind="no_examples",
            severity="warning",
            reward=reward.name,
            seen=f"reward {reward.name} could not write texts whose worth is known: "
            f"{_quoted(reward.examples_problem)}",
            advice="mend its examples function, or leave it out",
        )


def _constant(reward: RewardSeen, *, others_vary: bool) -> PreflightFinding | None:
    value = reward.values[0]
    good = values_of(reward.good)
    worthless = [*values_of(reward.bad), *(v for c in reward.canaries.values() for v in values_of(c))]
    tells_apart = any(other != value for other in worthless)
    count = len(reward.values)
    all_alike = f"reward {reward.name} gave {value:g} to all {count} completions"
    evidence = {"value": value, "completions": float(count)}
    if good and max(good) > value:
        return PreflightFinding(
            kind="never_earned",
            severity="warning",
            reward=reward.name,
            seen=f"{all_alike} of the base model, and {fmean(good):g} on average to {len(good)} texts that "
            "it calls good: the base model never earns it, so there is no learning signal",
            advice="teach the form first (supervised fine-tuning, or few-shot examples in the prompts), take "
            "easier rows, or let the reward give partial credit",
            evidence={**evidence, "known_good_mean": fmean(good)},
        )
    if tells_apart:
        return PreflightFinding(
            kind="already_earned" if good else "no_spread",
            severity="warning",
            reward=reward.name,
            seen=f"{all_alike}"
            + (", as to texts that it calls good" if good else "")
            + f", and {fmean(worthless):g} on average to {len(worthless)} texts that are wrong or say "
            "nothing: completions do not differ, so there is no learning signal",
            advice="take harder rows"
            if good
            else "take rows that the model sometimes solves, or let the reward give partial credit",
            evidence={**evidence, "worthless_mean": fmean(worthless)},
        )
    if not good:
        if reward.is_penalty and value == reward.high:
            return None
        lowest = value == (0.0 if reward.low is None else reward.low)
        if lowest and others_vary:
            return PreflightFinding(
                kind="no_spread",
                severity="warning",
                reward=reward.name,
                seen=f"{all_alike}, and to {len(worthless)} texts that say nothing",
                advice="it may be one that the base model does not earn yet, or a broken one: try it on a "
                "good answer, or give it an examples function",
                evidence=evidence,
            )
    known = f", to {len(good)} texts that it calls good," if good else ""
    return PreflightFinding(
        kind="constant_reward",
        severity="critical",
        reward=reward.name,
        seen=f"{all_alike}{known} and to {len(worthless)} texts that are wrong or say nothing",
        advice="it tells nothing apart, so that nothing can be learnt: check its config and the columns that "
        "it reads, and try it on a good and a bad answer"
        + ("" if good else "; where only a better model than this earns it, give it an examples function"),
        evidence=evidence,
    )


def _bad_pays(reward: RewardSeen) -> Iterator[PreflightFinding]:
    """Texts that are wrong, or say nothing, and yet score as well as good ones."""
    good = mean_of(reward.good)
    bad = mean_of(reward.bad)
    if good is not None and bad is not None and bad >= good:
        yield PreflightFinding(
            kind="bad_scores_well",
            severity="critical",
            reward=reward.name,
            seen=f"reward {reward.name} gave {bad:g} on average to texts that it calls bad, and {good:g} to "
            "those that it calls good",
            advice="mend the reward, or its examples function",
            evidence={"known_good_mean": good, "known_bad_mean": bad},
        )
    for text, outcomes in reward.canaries.items():
        value = mean_of(outcomes)
        if value is None:
            continue
        what = f"a completion of {text!r}" if text else "an empty completion"
        samples = mean_of(reward.samples)
        if good is not None:
            if value >= good:
                yield _nothing_pays(reward.name, what, value, f"{good:g} to a good one", "critical", good)
        elif reward.is_penalty or samples is None or value < samples:
            continue
        elif reward.low is not None and reward.high is not None:
            middle = (reward.low + reward.high) / 2
            if value >= middle:
                rest = f"{samples:g} on average to those of the base model"
                yield _nothing_pays(reward.name, what, value, rest, "warning", samples)
        elif value > max(reward.values):
            rest = f"at most {max(reward.values):g} to those of the base model"
            yield _nothing_pays(reward.name, what, value, rest, "warning", max(reward.values))


def _nothing_pays(
    name: str, what: str, value: float, rest: str, severity: Severity, other: float
) -> PreflightFinding:
    return PreflightFinding(
        kind="nothing_scores_well",
        severity=severity,
        reward=name,
        seen=f"reward {name} gave {value:g} to {what}, and {rest}",
        advice="a policy would learn to say nothing: let the reward refuse texts without an answer, or add "
        "one that does (format_check)",
        evidence={"canary": value, "other": other},
    )


def _slow(reward: RewardSeen, seen: RunSeen, batch_size: int) -> Iterator[PreflightFinding]:
    scoring = seconds_per_step(reward, batch_size)
    if scoring is None:
        return
    sampling = seen.rollout_seconds * max(1.0, batch_size / seen.completion_count)
    if scoring < _SLOW_SECONDS or scoring < _SLOW_RATIO * sampling:
        return
    stops = scoring >= _TOO_SLOW_SECONDS and scoring >= _TOO_SLOW_RATIO * sampling
    yield PreflightFinding(
        kind="slow_reward",
        severity="critical" if stops else "warning",
        reward=reward.name,
        seen=f"reward {reward.name} would take about {scoring:.0f} s to score a step of {batch_size} "
        f"completions, which the model samples in about {sampling:.1f} s: scoring would take most of the run",
        advice="score more of them at once (concurrency, more replicas of the server), make the reward "
        "faster, or lower global_batch_size",
        evidence={"seconds_per_step": scoring, "sampling_seconds_per_step": sampling},
    )


def _uninformative(seen: RunSeen, group_size: int) -> Iterator[PreflightFinding]:
    share = informative_fraction(seen.sums_by_prompt, group_size)
    if share is None or share >= FEW_INFORMATIVE:
        return
    larger = group_size_for(seen.sums_by_prompt, group_size, FEW_INFORMATIVE, _LARGEST_GROUP)
    raise_it = f"raise rollouts_per_prompt to {larger}, or " if larger else ""
    yield PreflightFinding(
        kind="few_informative_groups",
        severity="warning",
        seen=f"about {_percent(share)} of groups of {group_size} will hold different rewards, and only those "
        "teach",
        advice=f"{raise_it}take rows that the model solves about half of the time",
        evidence={"informative_group_fraction": share},
    )


def _percent(share: float) -> str:
    """A rough share, as rough as it is."""
    return f"{5 * round(20 * share)} %"


def describe_share(share: float | None) -> str:
    """The informative share for the log; "" where it is not known."""
    return "" if share is None else f"; about {_percent(share)} of groups will be mixed"


def _quoted(message: str) -> str:
    return message if len(message) <= _QUOTED_LENGTH else f"{message[:_QUOTED_LENGTH]}…"


_WAYS_OUT: Final[Mapping[FailureCode, str]] = {
    FailureCode.INVALID: "check the reward's config, and the columns of the dataset that it reads",
    FailureCode.TIMEOUT: "raise the reward's timeout_seconds, or make it faster",
    FailureCode.CANCELLED: "check the reward server's log",
    FailureCode.UNAVAILABLE: "check the reward server, and what it depends on",
    FailureCode.CONFLICT: "check the reward server's log",
    FailureCode.LIMIT_EXCEEDED: "raise the reward server's limits, or lower max_response_length",
    FailureCode.INTERNAL: "mend the reward: it must answer with a finite number in its range; its server's "
    "log may say more",
    FailureCode.EXHAUSTED: "raise the budget, or mend the credential, that the reward server names",
}
