"""Evaluates the policy: has it write for held-out prompts, and every reward score what it wrote.

Nothing here moves the randomness of training, and nothing is learnt: no reference, no loss, no gradient.
docs/evaluation.md describes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch
from transformers import PreTrainedModel

from plaudit.scoring import CompletionScores, KnownTexts, RewardRules
from plaudit.scoring.combine import MAX_ABSOLUTE_REWARD
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.scoring import Completion, FinishReason, Prompt, Purpose, Scored
from plaudit.types.statuses import EVALUATING
from trainer_service.training import canaries
from trainer_service.training.evaluation import Evaluation
from trainer_service.training.prompts import PreparedPrompt, decode_completion
from trainer_service.training.rollout import FinishedRow, RolloutSettings, RolloutStopped
from trainer_service.training.samples import Sample, tabulate
from trainer_service.training.sampling import KeyedUniforms
from trainer_service.training.scores import TURN_SECONDS
from trainer_service.training.trainer import Policy

_EXAMPLES_SECONDS: Final = 10.0


class EvaluationScorer(Protocol):
    """What is used of `plaudit.scoring.RewardScorer`. Times are in seconds."""

    def submit(
        self,
        prompt: Prompt,
        completion: Completion,
        *,
        step: int,
        group_size: int,
        purpose: Purpose,
        reward_names: Sequence[str] | None,
    ) -> None:
        """Sends a completion to these rewards. Never waits."""

    def wait(self, completion_ids: Iterable[str], timeout: float) -> bool:
        """Waits until there is an outcome of each; False where time ran out first."""

    def take(self, completion_ids: Iterable[str]) -> Mapping[str, CompletionScores]:
        """Hands over the outcomes and forgets them; what is open is given up."""

    def rules(self) -> Mapping[str, RewardRules]:
        """By reward, what its server promises of its values."""

    def known_texts(self, prompts: Sequence[Prompt], timeout: float) -> Mapping[str, KnownTexts]:
        """By reward, what it calls good and bad for these prompts."""

    def status_detail(self) -> str:
        """What is waited for, for people."""


@dataclass(slots=True)
class _Known:
    """Completions of which it is known what they are worth, by id: canaries and texts called good."""

    canaries: list[str] = field(default_factory=list)
    good: dict[str, list[str]] = field(default_factory=dict)

    def ids(self) -> list[str]:
        return [*self.canaries, *(one for ids in self.good.values() for one in ids)]


class Evaluator:
    """Takes the evaluations of a run."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[PreparedPrompt],
        hyperparameters: GrpoHyperparameters,
        *,
        rows_at_once: int,
        dtype: torch.dtype,
        scorer: EvaluationScorer,
        weights: Mapping[str, float],
        tell: Callable[[str], None],
    ) -> None:
        """`prompts` are the held-out ones, at least one, of which `rows_at_once` are written at a time;
        `dtype` is what the passes compute in. `weights` names the rewards in the job's order. `tell` is told
        what is waited for, for people.
        """
        self._policy = policy
        self._prompts = prompts
        self._seed = hyperparameters.seed
        self._settings = _settings(policy, hyperparameters)
        self._rows_at_once = rows_at_once
        self._dtype = dtype
        self._scorer = scorer
        self._weights = weights
        self._tell = tell
        self._known_texts: Mapping[str, KnownTexts] | None = None

    def run(self, step: int, model: PreTrainedModel, should_stop: Callable[[], bool]) -> Evaluation | None:
        """Evaluates `model`, the policy after `step`. None where `should_stop`, which is asked before every
        token and every second, said so: then nothing of it is kept.
        """
        began = time.monotonic()
        asked = self._asked()
        samples: dict[int, Sample] = {}
        known = self._submit_known(step, asked)
        submitted = known.ids()
        broken: set[int] = set()
        try:
            for first in range(0, len(self._prompts), self._rows_at_once):
                self._tell(f"{EVALUATING} {step}: {first} of {len(self._prompts)} completions")
                broken |= self._write(step, model, first, samples, submitted, asked, should_stop)
        except RolloutStopped:
            self._scorer.take(submitted)
            return None
        scores = self._collect(step, submitted, should_stop)
        if scores is None:
            return None
        samples_B = [samples[index] for index in range(len(self._prompts))]
        scores_B = [
            None if index in broken else scores[sample.completion.completion_id]
            for index, sample in enumerate(samples_B)
        ]
        return Evaluation(
            step=step,
            samples_B=samples_B,
            scores_B=scores_B,
            rewards=tabulate(scores_B, {name: self._weights[name] for name in asked}),
            canary_pass_fractions=self._canary_pass_fractions(asked, known, scores, scores_B),
            seconds=time.monotonic() - began,
        )

    def _asked(self) -> tuple[str, ...]:
        # One that ranks a group has nothing to say of a lone completion.
        rules = self._scorer.rules()
        return tuple(name for name in self._weights if not (name in rules and rules[name].whole_group))

    def _write(
        self,
        step: int,
        model: PreTrainedModel,
        first: int,
        samples: dict[int, Sample],
        submitted: list[str],
        asked: Sequence[str],
        should_stop: Callable[[], bool],
    ) -> set[int]:
        """Has the model write the completions from `first` on; returns those whose logits were not finite."""
        prompts_B = self._prompts[first : first + self._rows_at_once]

        def note(row: FinishedRow) -> Sample:
            sample = samples[first + row.index] = self._sample(step, first + row.index, row)
            return sample

        def send(row: FinishedRow) -> None:
            sample = note(row)
            if asked:
                submitted.append(sample.completion.completion_id)
                self._submit(step, _prompt(sample.prompt, sample.group_id), sample.completion, 1, asked)

        with torch.autocast(model.device.type, self._dtype, enabled=self._dtype is not torch.float32):
            result = self._policy.rollout(
                model,
                [prompt.token_ids for prompt in prompts_B],
                global_indices_B=range(first, first + len(prompts_B)),
                uniforms=KeyedUniforms(self._seed, step, "eval"),
                settings=self._settings,
                on_finish=send,
                should_stop=should_stop,
            )
        for index in result.non_finite_rows:
            note(FinishedRow(index, tuple(result.token_ids_B[index]), FinishReason.UNKNOWN))
        return {first + index for index in result.non_finite_rows}

    def _sample(self, step: int, index: int, row: FinishedRow) -> Sample:
        prompt = self._prompts[index]
        text, raw_text = decode_completion(self._policy.tokenizer, row.token_ids, row.finish_reason)
        return Sample(
            group_id=f"eval-{step}-g{index}",
            prompt=prompt,
            completion=Completion(
                completion_id=f"eval-{step}-{index}",
                text=text,
                token_count=len(row.token_ids),
                finish_reason=row.finish_reason,
                prefill=prompt.prefill,
                raw_text=raw_text,
            ),
        )

    def _submit_known(self, step: int, asked: Sequence[str]) -> _Known:
        """Has every reward score canaries, and what it calls good itself, for a few of the prompts."""
        known = _Known()
        prompts = self._prompts[: canaries.PROMPTS] if asked else ()
        for p, prompt in enumerate(prompts):
            shown = canaries.canaries_for(prompt)
            group = _prompt(prompt, f"eval-{step}-canaries-{p}")
            for number, canary in enumerate(shown):
                completion = self._text(f"eval-{step}-canary-{p}-{number}", canary.text)
                known.canaries.append(completion.completion_id)
                self._submit(step, group, completion, len(shown), asked)
        for name, texts in self._known_good(prompts).items():
            if name not in asked:
                continue
            for p, good in texts.items():
                group = _prompt(prompts[p], f"eval-{step}-good-{p}-{name}")
                for number, text in enumerate(good):
                    completion = self._text(f"eval-{step}-good-{p}-{name}-{number}", text)
                    known.good.setdefault(name, []).append(completion.completion_id)
                    self._submit(step, group, completion, len(good), (name,))
        return known

    def _known_good(self, prompts: Sequence[PreparedPrompt]) -> Mapping[str, Mapping[int, Sequence[str]]]:
        """What each reward calls good, by its name and the number of the prompt; asked once in a run."""
        if self._known_texts is None:
            asked = [_prompt(prompt, f"eval-{p}") for p, prompt in enumerate(prompts)]
            self._known_texts = self._scorer.known_texts(asked, _EXAMPLES_SECONDS) if asked else {}
        return {
            name: {
                p: texts.examples[f"eval-{p}"].good
                for p in range(len(prompts))
                if f"eval-{p}" in texts.examples
            }
            for name, texts in self._known_texts.items()
        }

    def _text(self, completion_id: str, text: str) -> Completion:
        token_count = len(self._policy.tokenizer(text, add_special_tokens=False)["input_ids"])
        return Completion(completion_id, text, token_count, FinishReason.STOP)

    def _submit(
        self, step: int, prompt: Prompt, completion: Completion, group_size: int, names: Sequence[str]
    ) -> None:
        self._scorer.submit(
            prompt, completion, step=step, group_size=group_size, purpose=Purpose.EVAL, reward_names=names
        )

    def _collect(
        self, step: int, submitted: Sequence[str], should_stop: Callable[[], bool]
    ) -> Mapping[str, CompletionScores] | None:
        """Waits for all scores: each has a deadline, so that this ends without one of its own."""
        while not self._scorer.wait(submitted, TURN_SECONDS):
            if should_stop():
                self._scorer.take(submitted)
                return None
            detail = self._scorer.status_detail() or "the rewards score"
            self._tell(f"evaluating after step {step}: {detail}")
        return self._scorer.take(submitted)

    def _canary_pass_fractions(
        self,
        asked: Sequence[str],
        known: _Known,
        scores: Mapping[str, CompletionScores],
        scores_B: Sequence[CompletionScores | None],
    ) -> dict[str, float]:
        rules = self._scorer.rules()
        fractions = {}
        for name in asked:
            rule = rules.get(name)
            standard = canaries.Standard(
                low=rule.low if rule and rule.low > -MAX_ABSOLUTE_REWARD else None,
                high=rule.high if rule and rule.high < MAX_ABSOLUTE_REWARD else None,
                good=_values(name, (scores[one] for one in known.good.get(name, ()))),
                samples=_values(name, (one for one in scores_B if one is not None)),
            )
            share = canaries.pass_fraction(standard, _values(name, (scores[one] for one in known.canaries)))
            if share is not None:
                fractions[name] = share
        return fractions


def _settings(policy: Policy, h: GrpoHyperparameters) -> RolloutSettings:
    return RolloutSettings(
        max_response_length=h.max_response_length,
        temperature=h.eval_temperature,
        top_p=h.top_p,
        top_k=h.top_k,
        end_token_ids=policy.end_token_ids,
        pad_token_id=policy.tokenizer.pad_token_id,
    )


def _prompt(prompt: PreparedPrompt, group_id: str) -> Prompt:
    return Prompt(group_id=group_id, messages=prompt.messages, columns=prompt.columns, text=prompt.text)


def _values(name: str, scores: Iterable[CompletionScores]) -> list[float]:
    outcomes = [one.outcomes[name].outcome for one in scores]
    return [outcome.value for outcome in outcomes if isinstance(outcome, Scored)]
