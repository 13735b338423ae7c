"""From a run's `start.json` to its last state: data, model, rewards, training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from datasets.utils.logging import disable_progress_bar as disable_datasets_progress_bar
from transformers import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from plaudit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from plaudit.scoring import RewardScorer
from plaudit.service import Secrets
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import DatasetReference
from plaudit.types.statuses import RunState
from trainer_service.journal import (
    CompletionsWritten,
    MemoryEstimated,
    PreflightFinished,
    RunStateChanged,
)
from trainer_service.run_directory import RunStart
from trainer_service.training.checkpoints import Checkpoint, open_checkpoint
from trainer_service.training.completions import write_completions, write_evaluation
from trainer_service.training.config import (
    TrainingPlan,
    compute_dtype,
    grpo_config,
    plan_training,
    uses_gradient_checkpointing,
)
from trainer_service.training.dataset import DatasetError, read_rows
from trainer_service.training.evaluation import Evaluation, spread
from trainer_service.training.evaluations import Evaluations, of_held_out, owed_after
from trainer_service.training.evaluator import Evaluator
from trainer_service.training.failures import PreflightFailedError, RewardUnavailableError
from trainer_service.training.memory import choose_micro_batch_size, weigh
from trainer_service.training.model_sources import ModelError
from trainer_service.training.models import check_lengths, end_token_ids, lora_config
from trainer_service.training.peers import PeerWatch
from trainer_service.training.preflight import Preflight, describe_preflight
from trainer_service.training.prompts import PreparedPrompt, PreparedPrompts, prepare_prompts
from trainer_service.training.release import release_final_model
from trainer_service.training.reporting import RunReporter
from trainer_service.training.rollout import check_against_generate
from trainer_service.training.samples import ScoredRollout, describe_held_out_failed, partly_applicable
from trainer_service.training.scores import TURN_SECONDS
from trainer_service.training.sft.session import SftSession
from trainer_service.training.stages import (
    PauseBeforeTrainingError,
    checkpoint_store,
    circumstances,
    device_name,
    enter_stage,
    train_to_the_end,
)
from trainer_service.training.starts import load_start, verify_inits
from trainer_service.training.steps import StepLedger, StepRules, describe_failures
from trainer_service.training.trainer import GrpoTrainer, Policy

REWARD_PATIENCE_SECONDS = 600.0
"""How long a run waits, before its first step, for reward servers that are not up."""


def train(start: RunStart, run_dir: Path, reporter: RunReporter) -> RunStateChanged:
    """Runs what `start` asks for and returns the last entry of the journal, still to be written.

    Raises RunCancelledError, and for what fails the run whatever `failures.describe_failure` knows.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    disable_datasets_progress_bar()
    try:
        if start.spec.method == "sft":
            end = SftSession(start, run_dir, reporter).run()
        else:
            end = _train_by_rewards(start, run_dir, reporter)
    except PauseBeforeTrainingError:
        return RunStateChanged(RunState.PAUSED, reason="asked to pause before training began")
    if end.state is RunState.COMPLETED:
        # Here, where nothing holds the trainer's memory any more.
        release_final_model(start, reporter)
    return end


def _train_by_rewards(start: RunStart, run_dir: Path, reporter: RunReporter) -> RunStateChanged:
    scorer = RewardScorer(
        start.spec.rewards,
        session_scope=f"{start.run_id}-0",
        job_id=start.job_id,
        model=start.spec.base_model,
        secrets=None if start.secrets_dir is None else Secrets(start.secrets_dir),
    )
    # Connections are made while data and model load.
    with scorer:
        return _Session(start, run_dir, reporter, scorer).run()


class _Session:
    def __init__(self, start: RunStart, run_dir: Path, reporter: RunReporter, scorer: RewardScorer) -> None:
        assert isinstance(start.spec.hyperparameters, GrpoHyperparameters)
        self._start = start
        self._spec = start.spec
        self._h = start.spec.hyperparameters
        self._run_dir = run_dir
        self._reporter = reporter
        self._scorer = scorer
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._weights = {target.binding.name: target.binding.weight for target in self._spec.rewards}
        self._peers = PeerWatch(scorer, reporter)
        self._ledger = StepLedger(self._h.clip_epsilon)
        self._warned_partly: set[str] = set()

    def run(self) -> RunStateChanged:
        self._enter_stage("loading the dataset")
        rows = list(read_rows(self._start.artifact_root, self._spec.dataset))
        self._enter_stage("loading the model")
        inits = verify_inits(self._start.artifact_root, self._spec.init_checkpoints)
        begin = load_start(self._spec.base_model, self._h, self._device, inits)
        model, tokenizer = begin.model, begin.tokenizer
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
            is_reference=begin.is_merged,
        )
        self._tell_plan(model, plan, prompts, prepared.truncated_count, check.detail)
        checkpoint = None
        if self._start.checkpoint_uri:
            self._enter_stage("verifying the checkpoint")
            checkpoint = open_checkpoint(self._start.artifact_root, self._start.checkpoint_uri)
        self._await_rewards()
        if checkpoint is None and self._spec.preflight != "off":
            with torch.autocast(self._device.type, dtype, enabled=dtype is not torch.float32):
                self._preflight(policy, prompts)
        self._enter_stage("building the trainer")
        evaluations = self._evaluations(policy, plan, checkpoint)
        trainer, rules = self._trainer(policy, plan, prompts, evaluations)
        self._reporter.log("info", trainer.prompt_sharing.detail)
        self._enter_stage("")
        end = train_to_the_end(trainer, rules, plan, checkpoint, self._reporter)
        self._peers.look(at_end=True)
        return end

    def _enter_stage(self, detail: str) -> None:
        enter_stage(self._reporter, detail)

    def _plan(self, model: PreTrainedModel, prompts: Sequence[PreparedPrompt]) -> TrainingPlan:
        longest_prompt = max(len(prompt.token_ids) for prompt in prompts)
        check_lengths(model, longest_prompt, self._h.max_response_length)
        bytes_per_value = compute_dtype(self._h, self._device).itemsize
        gradient_checkpointing = uses_gradient_checkpointing(self._h, self._device)
        micro_batch_size = choose_micro_batch_size(
            self._h,
            model,
            longest_prompt=longest_prompt,
            bytes_per_value=bytes_per_value,
            gradient_checkpointing=gradient_checkpointing,
        )
        verdict = weigh(
            self._h,
            model,
            longest_prompt=longest_prompt,
            bytes_per_value=bytes_per_value,
            gradient_checkpointing=gradient_checkpointing,
            micro_batch_size=micro_batch_size,
        )
        self._reporter.append(MemoryEstimated(verdict.estimate))
        if verdict.warning:
            self._reporter.log("warning", verdict.warning)
        if verdict.obstacles:
            raise InvalidArgumentError(verdict.obstacles)
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
        self._peers.look()
        versions = self._scorer.server_versions()
        self._reporter.log("info", "every reward server is there", versions=versions)

    def _preflight(self, policy: Policy, prompts: Sequence[PreparedPrompt]) -> None:
        """Has the base model write, and every reward score, a little. Raises PreflightFailedError."""
        report = Preflight(
            policy,
            prompts,
            self._h,
            scorer=self._scorer,
            weights=self._weights,
            keep_watch=self._enter_stage,
            should_stop=lambda: self._reporter.cancel_requested or self._reporter.pause_requested,
        ).run()
        self._enter_stage("")
        self._reporter.append(PreflightFinished(report))
        self._reporter.log("info", describe_preflight(report))
        if report.critical and self._spec.preflight == "stop":
            raise PreflightFailedError.of(report)

    def _evaluations(
        self, policy: Policy, plan: TrainingPlan, checkpoint: Checkpoint | None
    ) -> Evaluations | None:
        """The evaluations of the run, on prompts that are read here; None where the job has none."""
        if self._spec.eval_dataset is None:
            return None
        prepared = self._held_out_prompts(policy, self._spec.eval_dataset)
        if prepared.truncated_count:
            self._reporter.log(
                "warning",
                f"{prepared.truncated_count} of {len(prepared.prompts)} prompts of evaluations were longer "
                f"than max_prompt_length ({self._h.max_prompt_length} tokens) and lost the start of their "
                "longest user turn",
            )
        evaluator = Evaluator(
            policy,
            prepared.prompts,
            self._h,
            # What training has room for at once.
            rows_at_once=max(plan.prompts_per_step, plan.micro_batch_size),
            dtype=compute_dtype(self._h, self._device),
            scorer=self._scorer,
            weights=self._weights,
            tell=self._peers.waiting_for,
        )
        return Evaluations(
            evaluator,
            plan=plan,
            record=self._ledger,
            reporter=self._reporter,
            reward_names=tuple(self._weights),
            keep=self._keep_evaluation if self._h.log_completions else None,
            owed_after=owed_after(checkpoint),
        )

    def _held_out_prompts(self, policy: Policy, dataset: DatasetReference) -> PreparedPrompts:
        try:
            rows = list(read_rows(self._start.artifact_root, dataset))
            prepared = prepare_prompts(
                spread(rows, self._h.eval_max_prompts),
                policy.tokenizer,
                max_prompt_length=self._h.max_prompt_length,
            )
            longest = max(len(prompt.token_ids) for prompt in prepared.prompts)
            check_lengths(policy.model, longest, self._h.max_response_length)
        except (DatasetError, InvalidArgumentError, ModelError) as error:
            raise of_held_out(error, str(self._h.eval_dataset_id)) from error
        return prepared

    def _keep_evaluation(self, evaluation: Evaluation) -> CompletionsWritten:
        start = self._start
        return write_evaluation(
            start.artifact_root, job_id=start.job_id, attempt=start.attempt, evaluation=evaluation
        )

    def _trainer(
        self,
        policy: Policy,
        plan: TrainingPlan,
        prompts: Sequence[PreparedPrompt],
        evaluations: Evaluations | None,
    ) -> tuple[GrpoTrainer, StepRules]:
        rules = StepRules(
            ledger=self._ledger,
            plan=plan,
            reward_names=tuple(self._weights),
            max_unscored_fraction=self._h.max_unscored_fraction,
            kl_coef=self._h.kl_coef,
            artifact_root=self._start.artifact_root,
            reporter=self._reporter,
            advice=self._scorer,
            evaluations=evaluations,
        )
        trainer = GrpoTrainer(
            policy=policy,
            hyperparameters=self._h,
            args=grpo_config(self._h, plan, device=self._device, scratch=self._run_dir / "scratch"),
            plan=plan,
            prompts=prompts,
            reward_weights=self._weights,
            scorer=self._scorer,
            watch=self._peers,
            ledger=self._ledger,
            rules=rules,
            checkpoints=checkpoint_store(self._start, self._reporter),
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
                trace_id=self._scorer.trace_id(rollout.step),
            )
        if held_out := describe_held_out_failed(rollout.scores_B, rollout.rewards.taught_names):
            self._reporter.log(
                "warning",
                f"step {rollout.step}: {held_out}",
                step=rollout.step,
                trace_id=self._scorer.trace_id(rollout.step),
            )
        for name in sorted(partly_applicable(rollout) - self._warned_partly):
            self._warned_partly.add(name)
            self._reporter.log(
                "warning",
                f"step {rollout.step}: reward {name} applies to a part of a group only; its members are then "
                "compared by different sums",
                step=rollout.step,
            )
        self._peers.look()
        self._ledger.peer_metrics = self._peers.step_metrics()

    def _tell_plan(
        self,
        model: PreTrainedModel,
        plan: TrainingPlan,
        prompts: Sequence[PreparedPrompt],
        truncated: int,
        rollout_check: str,
    ) -> None:
        """The run's record: what it will do, on what, by which versions."""
        self._reporter.log(
            "info",
            f"{plan.total_steps} steps of {plan.global_batch_size} completions "
            f"({plan.group_size} for each of {plan.prompts_per_step} prompts) over {len(prompts)} prompts, "
            f"{plan.micro_batch_size} at once on {device_name(self._device)}",
            plan=asdict(plan),
            rollout=rollout_check,
            **circumstances(self._start, model, self._device),
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
