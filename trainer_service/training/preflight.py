"""Before a job trains: the base model writes a little, and every reward shows what it makes of it.

docs/preflight.md describes it. Nothing here moves the randomness of training: sampling is keyed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from plaudit.scoring import KnownTexts, RewardRules, RewardScorer, ScoredOutcome, weighted_sum
from plaudit.scoring.combine import MAX_ABSOLUTE_REWARD
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.preflight import PreflightReport, PreflightReward, PreflightSample
from plaudit.types.scoring import (
    Completion,
    Failed,
    FinishReason,
    NotApplicable,
    Outcome,
    Prompt,
    Purpose,
    Scored,
)
from trainer_service.training._preflight_findings import describe_share, find
from trainer_service.training._preflight_groups import informative_fraction
from trainer_service.training._preflight_seen import RewardSeen, RunSeen, mean_of, seconds_per_step
from trainer_service.training.canaries import ECHO, TEXTS, canaries_for
from trainer_service.training.canaries import PROMPTS as CANARY_PROMPTS
from trainer_service.training.prompts import PreparedPrompt, decode_completion
from trainer_service.training.rollout import FinishedRow, RolloutStopped
from trainer_service.training.sampling import KeyedUniforms
from trainer_service.training.scores import TURN_SECONDS
from trainer_service.training.trainer import Policy

PROMPTS: Final = 8
"""Rows of the dataset, spread over it, for which the base model writes."""

SAMPLES_PER_PROMPT: Final = 2
"""Two say whether completions of one prompt differ at all."""

PATIENCE_SECONDS: Final = 600.0
"""The longest wait for the scores of all; what is open then counts as failed."""

_Kind: TypeAlias = Literal["sample", "good", "bad", "canary"]

_EXAMPLES_SECONDS: Final = 10.0
_SAMPLES_KEPT: Final = 4
_KEPT_LENGTH: Final = 500


class Preflight:
    """One preflight of a run."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[PreparedPrompt],
        hyperparameters: GrpoHyperparameters,
        *,
        scorer: RewardScorer,
        weights: Mapping[str, float],
        keep_watch: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> None:
        """`weights` names the rewards in the job's order. `keep_watch` tells what is waited for and raises
        where the run is to stop or to pause, of which `should_stop` knows without raising.
        """
        self._policy = policy
        self._h = hyperparameters
        self._scorer = scorer
        self._weights = weights
        self._keep_watch = keep_watch
        self._should_stop = should_stop
        count = min(PROMPTS, len(prompts), max(1, hyperparameters.global_batch_size // SAMPLES_PER_PROMPT))
        self._prompts = [prompts[index * len(prompts) // count] for index in range(count)]
        self._probes: list[_Probe] = []

    def run(self) -> PreflightReport:
        """Samples, scores, and says what was found. Raises what `keep_watch` raises."""
        began = time.monotonic()
        rules = self._scorer.rules()
        self._keep_watch("preflight: asking the rewards for texts whose worth is known")
        known = self._scorer.known_texts(
            [_prompt(prompt, f"preflight-{p}") for p, prompt in enumerate(self._prompts)], _EXAMPLES_SECONDS
        )
        count = len(self._prompts) * SAMPLES_PER_PROMPT
        self._keep_watch(f"preflight: the base model writes {count} completions")
        non_finite_count, rollout_seconds = self._sample()
        self._add_known(known)
        self._add_canaries(rules)
        self._keep_watch("preflight: the rewards score them")
        sent_at = datetime.now(UTC)
        for probe in self._probes:
            self._scorer.submit(
                probe.prompt,
                probe.completion,
                step=0,
                group_size=probe.group_size,
                purpose=Purpose.PREFLIGHT,
                reward_names=probe.reward_names,
            )
        self._collect()
        rewards = [self._seen(name, rules.get(name), known[name], sent_at) for name in self._weights]
        seen = RunSeen(
            rewards=rewards,
            completion_count=count,
            truncated_count=sum(p.is_truncated for p in self._samples),
            empty_count=sum(not p.completion.text.strip() for p in self._samples),
            non_finite_count=non_finite_count,
            has_chat_template=bool(self._policy.tokenizer.chat_template),
            rollout_seconds=rollout_seconds,
            sums_by_prompt=self._sums_by_prompt(),
        )
        return PreflightReport(
            prompt_count=len(self._prompts),
            completion_count=count,
            truncated_count=seen.truncated_count,
            empty_count=seen.empty_count,
            seconds=round(time.monotonic() - began, 3),
            informative_group_fraction=informative_fraction(seen.sums_by_prompt, self._h.rollouts_per_prompt),
            rewards=tuple(_described(reward, self._h.global_batch_size) for reward in rewards),
            findings=find(seen, self._h),
            samples=tuple(_kept(probe) for probe in self._samples[::SAMPLES_PER_PROMPT][:_SAMPLES_KEPT]),
        )

    @property
    def _samples(self) -> list[_Probe]:
        return [probe for probe in self._probes if probe.kind == "sample"]

    def _sample(self) -> tuple[int, float]:
        """Has the base model write; returns how many rows were not finite, and the seconds that it took."""
        prompts_B = [prompt for prompt in self._prompts for _ in range(SAMPLES_PER_PROMPT)]
        began = time.monotonic()
        finished: list[FinishedRow] = []
        try:
            result = self._policy.rollout(
                self._policy.model,
                [prompt.token_ids for prompt in prompts_B],
                global_indices_B=range(len(prompts_B)),
                uniforms=KeyedUniforms(self._h.seed, 0, "preflight"),
                settings=self._policy.sampling(self._h),
                on_finish=finished.append,
                should_stop=self._should_stop,
            )
        except RolloutStopped:
            self._keep_watch("")
            raise
        seconds = time.monotonic() - began
        group_sizes = Counter(row.index // SAMPLES_PER_PROMPT for row in finished)
        for row in sorted(finished, key=lambda row: row.index):
            prompt = prompts_B[row.index]
            text, raw_text = decode_completion(self._policy.tokenizer, row.token_ids, row.finish_reason)
            group = row.index // SAMPLES_PER_PROMPT
            self._add(
                "sample",
                _prompt(prompt, f"preflight-{group}"),
                text,
                group_size=group_sizes[group],
                token_count=len(row.token_ids),
                finish_reason=row.finish_reason,
                prefill=prompt.prefill,
                raw_text=raw_text,
                place=group,
            )
        return len(result.non_finite_rows), seconds

    def _add_known(self, known: Mapping[str, KnownTexts]) -> None:
        for name, texts in known.items():
            for p, prompt in enumerate(self._prompts):
                examples = texts.examples.get(f"preflight-{p}")
                if examples is None:
                    continue
                # A group of its own for each reward: one that compares must see these texts, and no others.
                asked = _prompt(prompt, f"preflight-{p}-{name}")
                group_size = len(examples.good) + len(examples.bad)
                for text in examples.good:
                    self._add("good", asked, text, group_size=group_size, reward_names=(name,))
                for text in examples.bad:
                    self._add("bad", asked, text, group_size=group_size, reward_names=(name,))

    def _add_canaries(self, rules: Mapping[str, RewardRules]) -> None:
        # Ranked among themselves, one of them would come out on top.
        names = tuple(name for name in self._weights if name in rules and not rules[name].whole_group)
        for p, prompt in enumerate(self._prompts[:CANARY_PROMPTS]):
            asked = _prompt(prompt, f"preflight-{p}-canaries")
            canaries = canaries_for(prompt) if names else ()
            for canary in canaries:
                self._add(
                    "canary",
                    asked,
                    canary.text,
                    group_size=len(canaries),
                    reward_names=names,
                    canary=canary.name,
                )

    def _add(
        self,
        kind: _Kind,
        prompt: Prompt,
        text: str,
        *,
        group_size: int,
        reward_names: tuple[str, ...] | None = None,
        token_count: int | None = None,
        finish_reason: FinishReason = FinishReason.STOP,
        prefill: str = "",
        raw_text: str = "",
        place: int = 0,
        canary: str | None = None,
    ) -> None:
        if token_count is None:
            token_count = len(self._policy.tokenizer(text, add_special_tokens=False)["input_ids"])
        completion = Completion(
            completion_id=f"preflight-{len(self._probes)}",
            text=text,
            token_count=token_count,
            finish_reason=finish_reason,
            prefill=prefill,
            raw_text=raw_text,
        )
        self._probes.append(_Probe(kind, prompt, completion, group_size, reward_names, place, canary))

    def _collect(self) -> None:
        ids = [probe.completion.completion_id for probe in self._probes]
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self._scorer.wait(ids, TURN_SECONDS) and time.monotonic() < give_up:
            self._keep_watch(self._scorer.status_detail() or "preflight: the rewards score them")
        scores = self._scorer.take(ids)
        for probe in self._probes:
            probe.outcomes = scores[probe.completion.completion_id].outcomes

    def _seen(self, name: str, rules: RewardRules | None, known: KnownTexts, sent_at: datetime) -> RewardSeen:
        asked = [probe for probe in self._probes if name in probe.outcomes]
        return RewardSeen(
            name=name,
            low=rules.low if rules and rules.low > -MAX_ABSOLUTE_REWARD else None,
            high=rules.high if rules and rules.high < MAX_ABSOLUTE_REWARD else None,
            samples=_outcomes(name, asked, "sample"),
            good=_outcomes(name, asked, "good"),
            bad=_outcomes(name, asked, "bad"),
            canaries={
                canary: _outcomes(name, [p for p in asked if p.canary == canary], "canary")
                for canary in (*TEXTS, ECHO)
            },
            examples_problem=known.problem,
            is_held_out=self._weights[name] == 0.0,
            seconds=[
                (outcome.scored_at - sent_at).total_seconds()
                for probe in asked
                if isinstance((outcome := probe.outcomes[name]).outcome, Scored)
            ],
        )

    def _sums_by_prompt(self) -> list[list[float]]:
        sums: list[list[float]] = [[] for _ in self._prompts]
        for probe in self._samples:
            value = weighted_sum(probe.outcomes, self._weights).value
            if value is not None:
                sums[probe.place].append(value)
        return sums


def describe_preflight(report: PreflightReport) -> str:
    """The report in one line, for the log."""
    found = len(report.findings)
    return (
        f"preflight: {report.completion_count} completions for {report.prompt_count} prompts in "
        f"{report.seconds:.1f} s, {found or 'no'} finding{'s' * (found != 1)}"
        f"{describe_share(report.informative_group_fraction)}"
    )


@dataclass(slots=True)
class _Probe:
    """A text that the rewards are asked about. `place` is the prompt's, for a completion of the model;
    `canary` the name of one that is a canary.
    """

    kind: _Kind
    prompt: Prompt
    completion: Completion
    group_size: int
    reward_names: tuple[str, ...] | None
    place: int = 0
    canary: str | None = None
    outcomes: Mapping[str, ScoredOutcome] = field(default_factory=dict)

    @property
    def is_truncated(self) -> bool:
        """Whether max_response_length cut it."""
        return self.completion.finish_reason is FinishReason.LENGTH


def _prompt(prompt: PreparedPrompt, group_id: str) -> Prompt:
    return Prompt(group_id=group_id, messages=prompt.messages, columns=prompt.columns, text=prompt.text)


def _outcomes(name: str, probes: Iterable[_Probe], kind: _Kind) -> list[Outcome]:
    return [probe.outcomes[name].outcome for probe in probes if probe.kind == kind and name in probe.outcomes]


def _described(reward: RewardSeen, batch_size: int) -> PreflightReward:
    values = reward.values
    return PreflightReward(
        name=reward.name,
        scored_count=len(values),
        not_applicable_count=sum(isinstance(outcome, NotApplicable) for outcome in reward.samples),
        failed_count=sum(isinstance(outcome, Failed) for outcome in reward.samples),
        mean=mean_of(reward.samples),
        min=min(values, default=None),
        max=max(values, default=None),
        known_good_mean=mean_of(reward.good),
        known_bad_mean=mean_of(reward.bad),
        canary_mean=mean_of([outcome for outcomes in reward.canaries.values() for outcome in outcomes]),
        seconds_per_step=seconds_per_step(reward, batch_size),
    )


def _kept(probe: _Probe) -> PreflightSample:
    return PreflightSample(
        prompt_text=probe.prompt.text[-_KEPT_LENGTH:],
        completion_text=probe.completion.text[:_KEPT_LENGTH],
        truncated=probe.is_truncated,
        scores={
            name: scored.outcome.value
            for name, scored in probe.outcomes.items()
            if isinstance(scored.outcome, Scored)
        },
    )
