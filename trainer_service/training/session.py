"""From a run's `start.json` to its last state: data, model, rewards, training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch
from datasets.utils.logging import disable_progress_bar as disable_datasets_progress_bar
from transformers import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from plaudit.errors import FailedPreconditionError, PermissionDeniedError, UnauthenticatedError
from plaudit.scoring import RewardScorer
from plaudit.types.statuses import RunState
from trainer_service.journal import RunStateChanged
from trainer_service.run_directory import RunStart
from trainer_service.training.checkpoints import CheckpointStore, open_checkpoint
from trainer_service.training.completions import write_completions
from trainer_service.training.config import (
    TrainingPlan,
    compute_dtype,
    grpo_config,
    plan_training,
    uses_gradient_checkpointing,
)
from trainer_service.training.dataset import read_rows
from trainer_service.training.failures import RewardUnavailableError
from trainer_service.training.memory import choose_micro_batch_size
from trainer_service.training.models import end_token_ids, load_policy, lora_config
from trainer_service.training.prompts import PreparedPrompt, prepare_prompts
from trainer_service.training.reporting import RunReporter
from trainer_service.training.rollout import check_against_generate
from trainer_service.training.samples import ScoredRollout, partly_applicable
from trainer_service.training.scores import TURN_SECONDS
from trainer_service.training.steps import StepLedger, StepRules, describe_failures
from trainer_service.training.trainer import GrpoTrainer, Policy

REWARD_PATIENCE_SECONDS = 600.0
"""How long a run waits, before its first step, for reward servers that are not up."""

_VERSIONED = ("plaudit", "torch", "transformers", "trl", "peft", "accelerate")


class _PauseBeforeTrainingError(Exception):
    """A pause was asked for while there was nothing to save yet."""


def train(start: RunStart, run_dir: Path, reporter: RunReporter) -> RunStateChanged:
    """Runs what `start` asks for and returns the last entry of the journal, still to be written.

    Raises RunCancelledError, and for what fails the run whatever `failures.describe_failure` knows.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    disable_datasets_progress_bar()
    scorer = RewardScorer(
        start.spec.rewards,
        session_scope=f"{start.run_id}-0",
        job_id=start.job_id,
        model=start.spec.base_model,
    )
    # Connections are made while data and model load.
    with scorer:
        try:
            return _Session(start, run_dir, reporter, scorer).run()
        except _PauseBeforeTrainingError:
            return RunStateChanged(RunState.PAUSED, reason="asked to pause before training began")


class _Session:
    def __init__(self, start: RunStart, run_dir: Path, reporter: RunReporter, scorer: RewardScorer) -> None:
        self._start = start
        self._spec = start.spec
        self._h = start.spec.hyperparameters
        self._run_dir = run_dir
        self._reporter = reporter
        self._scorer = scorer
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._weights = {target.binding.name: target.binding.weight for target in self._spec.rewards}
        self._told_counters = scorer.counters()
        self._told_versions: dict[str, str] = {}
        self._warned_partly: set[str] = set()

    def run(self) -> RunStateChanged:
        self._enter_stage("loading the dataset")
        rows = list(read_rows(self._start.artifact_root, self._spec.dataset))
        self._enter_stage("loading the model")
        model, tokenizer = load_policy(self._spec.base_model, self._h, self._device)
        self._enter_stage("preparing the prompts")
        prepared = prepare_prompts(rows, tokenizer, max_prompt_length=self._h.max_prompt_length)
        prompts = prepared.prompts
        plan = self._plan(model, prompts)
        self._enter_stage("checking how the model samples")
        dtype = compute_dtype(self._h, self._device)
        with torch.autocast(self._device.type, dtype, enabled=dtype is not torch.float32):
            check = check_against_generate(model, tokenizer, [prompt.token_ids for prompt in prompts])
        policy = Policy(
            model=model,
            tokenizer=tokenizer,
            end_token_ids=end_token_ids(model, tokenizer),
            adapter=None if self._h.lora_rank is None else lora_config(model, self._h),
            rollout=check.rollout,
        )
        # transformers sets it for models of the hub only.
        revision = getattr(model.config, "_commit_hash", None)
        self._tell_plan(plan, prompts, prepared.truncated_count, check.detail, revision)
        checkpoint = None
        if self._start.checkpoint_uri:
            self._enter_stage("verifying the checkpoint")
            checkpoint = open_checkpoint(self._start.artifact_root, self._start.checkpoint_uri)
        self._await_rewards()
        self._enter_stage("building the trainer")
        trainer, rules = self._trainer(policy, plan, prompts)
        self._enter_stage("")
        self._reporter.starts_at(checkpoint.step if checkpoint else 0, plan.total_steps)
        self._reporter.enter(RunState.RUNNING)
        trainer.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)
        if trainer.state.global_step < plan.total_steps:
            assert rules.pause_reason is not None, "training stopped early without a reason"
            return RunStateChanged(RunState.PAUSED, reason=rules.pause_reason)
        return RunStateChanged(RunState.COMPLETED)

    def _enter_stage(self, detail: str) -> None:
        self._reporter.check()
        if self._reporter.pause_requested:
            raise _PauseBeforeTrainingError
        self._reporter.waiting_for(detail)

    def _plan(self, model: PreTrainedModel, prompts: Sequence[PreparedPrompt]) -> TrainingPlan:
        micro_batch_size = choose_micro_batch_size(
            self._h,
            model,
            longest_prompt=max(len(prompt.token_ids) for prompt in prompts),
            bytes_per_value=compute_dtype(self._h, self._device).itemsize,
            gradient_checkpointing=uses_gradient_checkpointing(self._h, self._device),
        )
        return plan_training(self._h, row_count=len(prompts), micro_batch_size=micro_batch_size)

    def _await_rewards(self) -> None:
        """Waits for every reward server, at most REWARD_PATIENCE_SECONDS, while it says for which."""
        give_up = time.monotonic() + REWARD_PATIENCE_SECONDS
        try:
            while not self._scorer.wait_ready(TURN_SECONDS):
                detail = self._scorer.status_detail() or "waiting for the reward servers"
                self._enter_stage(detail)
                if time.monotonic() > give_up:
                    raise RewardUnavailableError(
                        f"after {REWARD_PATIENCE_SECONDS:g} s a reward server is still not there: {detail}; "
                        "start it and resume the job"
                    )
        except (FailedPreconditionError, UnauthenticatedError, PermissionDeniedError) as error:
            raise RewardUnavailableError(error.message) from error
        self._told_versions = self._scorer.server_versions()
        self._reporter.log("info", "every reward server is there", versions=self._told_versions)

    def _trainer(
        self, policy: Policy, plan: TrainingPlan, prompts: Sequence[PreparedPrompt]
    ) -> tuple[GrpoTrainer, StepRules]:
        ledger = StepLedger(self._h.clip_epsilon)
        rules = StepRules(
            ledger=ledger,
            plan=plan,
            reward_names=tuple(self._weights),
            max_unscored_fraction=self._h.max_unscored_fraction,
            artifact_root=self._start.artifact_root,
            reporter=self._reporter,
            advice=self._scorer,
        )
        trainer = GrpoTrainer(
            policy=policy,
            hyperparameters=self._h,
            args=grpo_config(self._h, plan, device=self._device, scratch=self._run_dir / "scratch"),
            plan=plan,
            prompts=prompts,
            reward_weights=self._weights,
            scorer=self._scorer,
            watch=self._reporter,
            ledger=ledger,
            rules=rules,
            checkpoints=CheckpointStore(
                self._start.artifact_root,
                job_id=self._start.job_id,
                attempt=self._start.attempt,
                keep=self._h.checkpoint_keep,
                announce=self._reporter.append,
            ),
            on_scored=self._note_rollout,
        )
        return trainer, rules

    def _note_rollout(self, rollout: ScoredRollout) -> None:
        if self._h.log_completions:
            self._reporter.append(
                write_completions(
                    self._start.artifact_root,
                    job_id=self._start.job_id,
                    attempt=self._start.attempt,
                    rollout=rollout,
                    mask_truncated=self._h.mask_truncated,
                )
            )
        unscored = int(rollout.rewards.failed_B.sum())
        if unscored:
            self._reporter.log(
                "warning",
                f"step {rollout.step}: {unscored} of {len(rollout.samples_B)} completions could not be "
                f"scored, and teach nothing: {describe_failures(rollout)}",
                step=rollout.step,
            )
        for name in sorted(partly_applicable(rollout, self._weights) - self._warned_partly):
            self._warned_partly.add(name)
            self._reporter.log(
                "warning",
                f"step {rollout.step}: reward {name} applies to a part of a group only; its members are then "
                "compared by different sums",
                step=rollout.step,
            )
        self._note_servers()

    def _note_servers(self) -> None:
        counters = self._scorer.counters()
        if counters != self._told_counters:
            self._told_counters = counters
            self._reporter.log("info", "what went wrong with reward servers so far", **asdict(counters))
        versions = self._scorer.server_versions()
        for name, now in versions.items():
            before = self._told_versions.get(name)
            if before is not None and before != now:
                self._reporter.log(
                    "warning", f"reward server {name} changed from version {before} to {now} in mid-run"
                )
        self._told_versions |= versions

    def _tell_plan(
        self,
        plan: TrainingPlan,
        prompts: Sequence[PreparedPrompt],
        truncated: int,
        rollout_check: str,
        model_revision: str | None,
    ) -> None:
        """The run's record: what it will do, on what, by which versions."""
        device = "cpu" if self._device.type == "cpu" else torch.cuda.get_device_name(self._device)
        self._reporter.log(
            "info",
            f"{plan.total_steps} steps of {plan.global_batch_size} completions "
            f"({plan.group_size} for each of {plan.prompts_per_step} prompts) over {len(prompts)} prompts, "
            f"{plan.micro_batch_size} at once on {device}",
            plan=asdict(plan),
            device=device,
            threads=torch.get_num_threads(),
            compute_dtype=str(compute_dtype(self._h, self._device)).removeprefix("torch."),
            dataset=self._spec.dataset.model_dump(),
            base_model=self._spec.base_model,
            model_revision=model_revision,
            rollout=rollout_check,
            versions={name: version(name) for name in _VERSIONED},
        )
        if plan.borrowed_prompts:
            self._reporter.log(
                "info",
                f"the last step is filled with {plan.borrowed_prompts} prompts that are seen once more, as "
                f"{plan.prompts_per_step} prompts a step do not divide the {len(prompts)} of the dataset",
            )
        if truncated:
            self._reporter.log(
                "warning",
                f"{truncated} of {len(prompts)} prompts were longer than max_prompt_length "
                f"({self._h.max_prompt_length} tokens) and lost the start of their longest user turn",
            )
