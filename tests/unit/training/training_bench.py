"""A model of a few thousand weights, prompts for it, a scorer that says what it is told."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from plaudit.scoring import CompletionScores, KnownTexts, RewardRules, ScoredOutcome
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.scoring import (
    ChatMessage,
    Completion,
    Examples,
    FinishReason,
    Outcome,
    Prompt,
    Purpose,
    Scored,
)
from trainer_service.control import RunControl
from trainer_service.journal import CompletionsWritten, JournalReader, JournalWriter
from trainer_service.training.checkpoints import CheckpointStore
from trainer_service.training.completions import write_evaluation
from trainer_service.training.config import grpo_config, plan_training
from trainer_service.training.evaluation import Evaluation, spread
from trainer_service.training.evaluations import Evaluations
from trainer_service.training.evaluator import Evaluator
from trainer_service.training.prompts import PreparedPrompt
from trainer_service.training.reporting import RunReporter
from trainer_service.training.rollout import FinishedRow, RolloutResult, roll_out
from trainer_service.training.samples import ScoredRollout
from trainer_service.training.steps import StepLedger, StepRules
from trainer_service.training.trainer import GrpoTrainer, Policy

VOCABULARY = 48
HELD_OUT = 5
"""Prompts of evaluations."""
END, PAD = 1, 0


def save_random_model(folder: Path) -> None:
    """A random Qwen2 of 2 layers and 32 hidden units, with a tokenizer of 48 words."""
    words = ["<pad>", "<end>", *(f"w{i}" for i in range(2, VOCABULARY))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="w2"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", padding_side="left"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=END,
        pad_token_id=PAD,
        tie_word_embeddings=True,
        # Large enough that a step of training is seen in the log-probabilities
        initializer_range=0.3,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def load_model(folder: Path) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def drifted_model(folder: Path) -> Qwen2ForCausalLM:
    """The model after some training: its reference, which TRL loads from `folder`, is another one."""
    model = load_model(folder)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return model


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder, padding_side="left")


SMALL = {
    "rollouts_per_prompt": 4,
    "global_batch_size": 16,
    "max_response_length": 6,
    "learning_rate": 1e-2,
    "max_steps": 2,
    "checkpoint_every": 1000.0,
}


def make_prompts(count: int, seed: int = 0) -> list[PreparedPrompt]:
    source = random.Random(seed)
    prompts = []
    for i in range(count):
        token_ids = tuple(source.randint(2, VOCABULARY - 1) for _ in range(source.randint(2, 9)))
        text = " ".join(f"w{t}" for t in token_ids)
        prompts.append(
            PreparedPrompt(
                row_index=i,
                token_ids=token_ids,
                text=text,
                messages=(ChatMessage("user", text),),
                prefill="",
                columns={"row": i},
                truncated=False,
            )
        )
    return prompts


def scripted_completions(count: int, longest: int, seed: int = 0) -> list[tuple[list[int], FinishReason]]:
    """Completions of ragged lengths; about a third are cut at `longest`."""
    source = random.Random(seed)
    completions = []
    for _ in range(count):
        if source.random() < 0.3:
            completions.append(
                ([source.randint(2, VOCABULARY - 1) for _ in range(longest)], FinishReason.LENGTH)
            )
        else:
            tokens = [source.randint(2, VOCABULARY - 1) for _ in range(source.randint(0, longest - 1))]
            completions.append(([*tokens, END], FinishReason.STOP))
    return completions


class ScriptedRollout:
    """Stands for `roll_out` where a test needs to know the completions beforehand."""

    def __init__(self, completions, non_finite_calls=frozenset()):
        self.completions = completions
        self.non_finite_calls = non_finite_calls
        self.calls = 0

    def __call__(self, model, prompt_token_ids_B, *, on_finish, **_) -> RolloutResult:
        self.calls += 1
        broken = (0,) if self.calls in self.non_finite_calls else ()
        for b, (tokens, reason) in enumerate(self.completions):
            if b not in broken:
                on_finish(FinishedRow(b, tuple(tokens), reason))
        return RolloutResult(
            [list(tokens) for tokens, _ in self.completions], [r for _, r in self.completions], broken
        )


OutcomesOf = Callable[[Prompt, Completion, int], Mapping[str, Outcome]]


@dataclass
class ScriptedScorer:
    """Scores by a function of prompt, completion and step; at once, in the order in which it is asked."""

    outcomes_of: OutcomesOf
    reason: str | None = None
    promised: Mapping[str, RewardRules] = field(default_factory=dict)
    knows_good: tuple[str, ...] = ()
    submitted: list[tuple[Prompt, Completion, int, int, Purpose]] = field(default_factory=list)
    _scores: dict[str, CompletionScores] = field(default_factory=dict)

    def submit(self, prompt, completion, *, step, group_size, purpose, reward_names=None) -> None:
        self.submitted.append((prompt, completion, step, group_size, purpose))
        outcomes = self.outcomes_of(prompt, completion, step)
        now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self._scores[completion.completion_id] = CompletionScores(
            {
                name: ScoredOutcome(outcome, 0.25, now)
                for name, outcome in outcomes.items()
                if reward_names is None or name in reward_names
            }
        )

    def wait(self, completion_ids: Iterable[str], timeout: float) -> bool:
        return set(completion_ids) <= self._scores.keys()

    def take(self, completion_ids: Iterable[str]) -> dict[str, CompletionScores]:
        return {completion_id: self._scores.pop(completion_id) for completion_id in completion_ids}

    def status_detail(self) -> str:
        return "scripted"

    def pause_reason(self) -> str | None:
        return self.reason

    def rules(self) -> Mapping[str, RewardRules]:
        return self.promised

    def known_texts(self, prompts, timeout: float) -> Mapping[str, KnownTexts]:
        examples = {prompt.group_id: Examples(good=(prompt.text,)) for prompt in prompts}
        return {name: KnownTexts(examples) for name in self.knows_good}


def length_reward(prompt: Prompt, completion: Completion, step: int) -> dict[str, Outcome]:
    return {"length": Scored(completion.token_count / 7 + len(completion.text) % 3)}


@dataclass
class Bench:
    """A trainer with everything around it on real files, and what it left behind."""

    trainer: GrpoTrainer
    scorer: ScriptedScorer
    rules: StepRules
    ledger: StepLedger
    rollouts: list[ScoredRollout]
    control: RunControl
    journal: JournalWriter
    run_dir: Path
    artifact_root: Path

    def entries(self, kind: type) -> list[Any]:
        with JournalReader(self.run_dir) as reader:
            return [r.entry for r in reader.read_after(0, 10_000) if isinstance(r.entry, kind)]

    def parameters(self) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.trainer.model.named_parameters()}


class BenchMaker:
    """Builds benches: hyperparameters by name, the rest by keyword."""

    def __init__(self, model_dir: Path, tmp_path: Path) -> None:
        self.model_dir = model_dir
        self.tmp_path = tmp_path
        self.journals: list[JournalWriter] = []

    def __call__(
        self,
        *,
        outcomes_of: OutcomesOf = length_reward,
        weights: Mapping[str, float] | None = None,
        rollout=roll_out,
        prompt_count: int = 8,
        micro_batch_size: int = 8,
        adapter=None,
        attempt: int = 1,
        model=None,
        scorer=None,
        owed_after: int | None = 0,
        **hyperparameters: Any,
    ) -> Bench:
        h = GrpoHyperparameters(**{**SMALL, **hyperparameters})
        weights = weights or {"length": 1.0}
        run_dir = self.tmp_path / f"run-{len(self.journals)}"
        run_dir.mkdir()
        artifact_root = self.tmp_path / "artifacts"
        journal = JournalWriter(run_dir)
        self.journals.append(journal)
        control = RunControl(*os.pipe())
        reporter = RunReporter(journal, control)
        plan = plan_training(h, row_count=prompt_count, micro_batch_size=micro_batch_size)
        scorer = scorer or ScriptedScorer(outcomes_of)
        ledger = StepLedger(h.clip_epsilon)
        policy = Policy(
            model=model or load_model(self.model_dir),
            tokenizer=load_tokenizer(self.model_dir),
            end_token_ids=frozenset({END}),
            adapter=adapter,
            rollout=rollout,
        )
        evaluations = None
        if h.eval_dataset_id is not None:

            def keep(evaluation: Evaluation) -> CompletionsWritten:
                return write_evaluation(artifact_root, job_id="job", attempt=attempt, evaluation=evaluation)

            evaluations = Evaluations(
                Evaluator(
                    policy,
                    spread(make_prompts(HELD_OUT, seed=7), h.eval_max_prompts),
                    h,
                    rows_at_once=2,
                    dtype=torch.float32,
                    scorer=scorer,
                    weights=weights,
                    tell=reporter.waiting_for,
                ),
                plan=plan,
                record=ledger,
                reporter=reporter,
                reward_names=tuple(weights),
                keep=keep,
                owed_after=owed_after,
            )
        rules = StepRules(
            ledger=ledger,
            plan=plan,
            reward_names=tuple(weights),
            max_unscored_fraction=h.max_unscored_fraction,
            kl_coef=h.kl_coef,
            artifact_root=self.tmp_path,
            reporter=reporter,
            advice=scorer,
            evaluations=evaluations,
        )
        rollouts: list[ScoredRollout] = []
        trainer = GrpoTrainer(
            policy=policy,
            hyperparameters=h,
            args=grpo_config(h, plan, device=torch.device("cpu"), scratch=run_dir / "scratch"),
            plan=plan,
            prompts=make_prompts(prompt_count),
            reward_weights=weights,
            scorer=scorer,
            watch=reporter,
            ledger=ledger,
            rules=rules,
            checkpoints=CheckpointStore(
                artifact_root, job_id="job", attempt=attempt, keep=h.checkpoint_keep, announce=reporter.append
            ),
            on_scored=rollouts.append,
        )
        return Bench(trainer, scorer, rules, ledger, rollouts, control, journal, run_dir, artifact_root)
