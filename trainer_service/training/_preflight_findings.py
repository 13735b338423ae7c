"""What a preflight saw becomes findings: what is wrong, with numbers, and what to change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Final

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.preflight import PreflightFinding, Severity
from plaudit.types.scoring import Failed, FailureCode, NotApplicable
from plaudit.types.texts import one_line
from trainer_service.training._preflight_groups import group_size_for, informative_fraction
from trainer_service.training._preflight_seen import RewardSeen, RunSeen, mean_of, seconds_per_step, values_of
from trainer_service.training.canaries import ECHO

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


def find(seen: RunSeen, hyperparameters: GrpoHyperparameters) -> tuple[PreflightFinding, ...]:
    """All findings, the worst first."""
    tolerated = hyperparameters.max_unscored_fraction
    findings = [*_about_completions(seen, hyperparameters), *_nothing_applies(seen, tolerated)]
    taught = [reward for reward in seen.rewards if not reward.is_held_out]
    varying = sum(len(set(reward.values)) > 1 for reward in taught)
    for reward in seen.rewards:
        found = list(_failing(reward, tolerated))
        if len(seen.rewards) > 1:  # else it is told of the whole run
            found.extend(_applies_to_nothing(reward))
        constant = None
        if reward.is_constant:
            constant = _constant(reward, others_vary=varying > 0)
        if constant is not None:
            found.append(constant)
        if constant is None or constant.kind != "constant_reward":
            found.extend(_bad_pays(reward))
        found.extend(_slow(reward, seen, hyperparameters.global_batch_size))
        findings.extend(_of_held_out(finding) if reward.is_held_out else finding for finding in found)
    if varying:
        findings.extend(_uninformative(seen, hyperparameters.rollouts_per_prompt))
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def _of_held_out(finding: PreflightFinding) -> PreflightFinding:
    """Nothing is learnt from such a reward, so that nothing of it makes the run worthless."""
    is_critical = finding.severity == "critical"
    return finding.model_copy(update={"severity": "warning"}) if is_critical else finding


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


def _nothing_applies(seen: RunSeen, tolerated: float) -> Iterator[PreflightFinding]:
    """Completions to which no reward of the job applies: they teach nothing, as those that failed do."""
    taught = [reward for reward in seen.rewards if not reward.is_held_out]
    outcomes_by_completion = list(zip(*(reward.samples for reward in taught), strict=True))
    count = len(outcomes_by_completion)
    left_out = sum(
        all(isinstance(outcome, NotApplicable) for outcome in outcomes) for outcomes in outcomes_by_completion
    )
    if not left_out or not (left_out == count or left_out > tolerated * count):
        return
    names = ", ".join(reward.name for reward in taught)
    reasons = Counter(
        outcome.reason
        for reward in taught
        for outcome in reward.samples
        if isinstance(outcome, NotApplicable) and outcome.reason
    ).most_common(1)
    why = f": {_quoted(reasons[0][0])}" if reasons else ""
    yield PreflightFinding(
        kind="nothing_applies",
        severity="critical",
        seen=f"no reward ({names}) applies to {left_out} of {count} completions, which teach nothing{why}",
        advice="check the columns that the rewards read and when they say that they do not apply, or take "
        "rows to which they do",
        evidence={"not_applicable": left_out, "completions": count},
    )


def _applies_to_nothing(reward: RewardSeen) -> Iterator[PreflightFinding]:
    if reward.samples and all(isinstance(outcome, NotApplicable) for outcome in reward.samples):
        yield PreflightFinding(
            kind="not_applicable",
            severity="warning",
            reward=reward.name,
            seen=f"reward {reward.name} applies to none of {len(reward.samples)} completions",
            advice="check the columns that it reads, or leave it out",
            evidence={"completions": len(reward.samples)},
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
    standard = reward.standard
    for name, outcomes in reward.canaries.items():
        value = mean_of(outcomes)
        if value is None or not standard.lets_pass(value):
            continue
        samples = mean_of(reward.samples)
        if good is not None:
            yield _canary_pays(reward.name, name, value, f"{good:g} to a good one", good, is_certain=True)
        elif samples is not None and reward.low is not None and reward.high is not None:
            rest = f"{samples:g} on average to those of the base model"
            yield _canary_pays(reward.name, name, value, rest, samples)
        else:
            most = max(reward.values)
            rest = f"at most {most:g} to those of the base model"
            yield _canary_pays(reward.name, name, value, rest, most)


def _canary_pays(
    reward: str, canary: str, value: float, rest: str, other: float, *, is_certain: bool = False
) -> PreflightFinding:
    is_echo = canary == ECHO
    what = f"a completion of {canary!r}" if canary else "an empty completion"
    return PreflightFinding(
        kind="nothing_scores_well",
        # A prompt may hold, as an example or by chance, what a reward for one part of an answer looks for.
        severity="critical" if is_certain and not is_echo else "warning",
        reward=reward,
        seen=f"reward {reward} gave {value:g} to "
        f"{'a completion that repeats the prompt' if is_echo else what}, and {rest}",
        advice=f"a policy would learn to {'repeat what it is asked' if is_echo else 'say nothing'}: let the "
        "reward refuse texts without an answer, or add one that does (format_check)",
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
    quoted = one_line(message, _QUOTED_LENGTH)
    return quoted if len(message) <= _QUOTED_LENGTH else f"{quoted}…"


_WAYS_OUT: Final[Mapping[FailureCode, str]] = {
    FailureCode.INVALID: "check the reward's config, and the columns of the dataset that it reads",
    FailureCode.TIMEOUT: "raise the reward's timeout_seconds, or make it faster",
    FailureCode.CANCELLED: "check the reward server's log",
    FailureCode.UNAVAILABLE: "check the reward server, and what it depends on",
    FailureCode.CONFLICT: "check the reward server's log",
    FailureCode.LIMIT_EXCEEDED: "raise the reward server's limits, or lower max_response_length",
    FailureCode.INTERNAL: "mend the reward: it must answer with a finite number in its range; its server's "
    "log may say more",
    FailureCode.EXHAUSTED: "mend the credential that the reward server names, or submit the job again "
    "with a higher budget",
}
