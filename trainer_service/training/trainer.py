"""GRPO by TRL, with our rollouts, rewards from elsewhere, and completions that could not be scored left out.

`overrides.py` lists what this class replaces, and why.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import gather
from datasets import Dataset
from peft import PeftConfig
from torch.nn.functional import pad
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from plaudit.scoring import CompletionScores
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.scoring import Completion, FinishReason
from trainer_service.training.advantages import compute_advantages
from trainer_service.training.checkpoints import CheckpointStore
from trainer_service.training.config import GRADIENT_CHECKPOINTING_KWARGS, TrainingPlan
from trainer_service.training.forward import padded_rows, token_log_probs
from trainer_service.training.forward_check import check_prompt_sharing
from trainer_service.training.masking import LOSS_SCALE, Batch, mask_batch, micro_batches, order_rows
from trainer_service.training.overrides import tiles_in_place
from trainer_service.training.prompts import PreparedPrompt, decode_completion
from trainer_service.training.rollout import FinishedRow, Rollout, RolloutSettings, RolloutStopped
from trainer_service.training.run_trainer import RunTrainer
from trainer_service.training.samples import RewardTable, Sample, ScoredRollout, tabulate
from trainer_service.training.sampling import KeyedUniforms
from trainer_service.training.scores import Scorer, Watch, collect, submit
from trainer_service.training.seeding import RunSampler
from trainer_service.training.steps import StepLedger, StepRules


@dataclass(frozen=True, slots=True)
class Policy:
    """The model to train, and how it writes. `adapter`: None for full fine-tuning.

    `is_reference`: where all weights are trained, the KL term is taken from the model as it is here, and not
    from the base model whose name it bears.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    end_token_ids: frozenset[int]
    adapter: PeftConfig | None
    rollout: Rollout
    is_reference: bool = False

    def sampling(self, hyperparameters: GrpoHyperparameters) -> RolloutSettings:
        """How its completions are sampled in training."""
        return RolloutSettings(
            max_response_length=hyperparameters.max_response_length,
            temperature=hyperparameters.temperature,
            top_p=hyperparameters.top_p,
            top_k=hyperparameters.top_k,
            end_token_ids=self.end_token_ids,
            pad_token_id=self.tokenizer.pad_token_id,
        )


class GrpoTrainer(RunTrainer, GRPOTrainer):
    """One run's training loop: `train()` returns at the last step or a pause, or raises RunCancelledError."""

    def __init__(
        self,
        *,
        policy: Policy,
        hyperparameters: GrpoHyperparameters,
        args: GRPOConfig,
        plan: TrainingPlan,
        prompts: Sequence[PreparedPrompt],
        reward_weights: Mapping[str, float],
        scorer: Scorer,
        watch: Watch,
        ledger: StepLedger,
        rules: StepRules,
        checkpoints: CheckpointStore,
        on_scored: Callable[[ScoredRollout], None],
    ) -> None:
        """`reward_weights` names the rewards in the job's order; `on_scored` is told of every rollout."""
        # Set before TRL's constructor, which calls methods that we override.
        self._hyperparameters = hyperparameters
        self._plan = plan
        self._prompts = prompts
        self._policy_rollout = policy.rollout
        self._reward_weights = dict(reward_weights)
        self._scorer = scorer
        self._watch = watch
        self._record = self._ledger = ledger
        self._checkpoints = checkpoints
        self._rules = rules
        self._on_scored = on_scored
        self._takes_positions = "position_ids" in inspect.signature(type(policy.model).forward).parameters
        self._rollout_settings = policy.sampling(hyperparameters)
        self._pending = _PendingRollout(step=0, first_index=0, prompts_B=[])
        self._micro_batches: list[Batch] = []
        self._ahead: tuple[torch.Tensor, torch.Tensor] | None = None
        self._policy_pass: tuple[torch.Tensor, torch.Tensor] = torch.empty(0), torch.empty(0)
        super().__init__(
            model=policy.model,
            reward_funcs=[_never_called(name) for name in self._reward_weights],
            args=args,
            # TRL carries the numbers of the rows; what is in them stays with us.
            train_dataset=Dataset.from_dict({"prompt": [""] * len(prompts), "row": range(len(prompts))}),
            processing_class=policy.tokenizer,
            peft_config=policy.adapter,
            callbacks=[rules],
        )
        self._settle()
        if args.gradient_checkpointing:
            # As train() does, so that the check sees layers as they will run.
            policy.model.activation_checkpointing_enable(GRADIENT_CHECKPOINTING_KWARGS)
        self.prompt_sharing = check_prompt_sharing(
            self.model_wrapped,
            self.accelerator,
            [p.token_ids for p in prompts],
            policy.tokenizer.pad_token_id,
        )
        """Whether the completions of a group share one pass over their prompt, and why."""
        if policy.is_reference and self.ref_model is not None:
            # TRL has loaded the base model, and this policy starts elsewhere.
            self.ref_model.load_state_dict(policy.model.state_dict())

    def _get_train_sampler(self, dataset: Dataset | None = None) -> RunSampler:
        return RunSampler(self._plan, self._hyperparameters.seed)

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        with tiles_in_place(self.accelerator.device):
            loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[no-untyped-call]
        return loss

    def _prepare_inputs(self, generation_batch: Any) -> Batch:
        plan = self._plan
        if self._step % plan.micro_steps_per_rollout == 0:
            # TRL empties its own metrics when it logs, which it does not do here.
            self._metrics["train"].clear()
            batch = self._generate_and_score_completions(generation_batch)
            self._micro_batches = micro_batches(
                batch, self._pending.order_B, plan.accumulation_steps, self._hyperparameters.loss_type
            )
        return self._micro_batches[self._step % plan.accumulation_steps]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Batch:
        h = self._hyperparameters
        self._pending = _PendingRollout(
            step=self.state.global_step + 1,
            first_index=self.accelerator.process_index * len(inputs),
            prompts_B=[self._prompts[row["row"]] for row in inputs],
        )
        batch: Batch = super()._generate_and_score_completions(inputs)
        pending = self._pending
        rollout = ScoredRollout(
            step=pending.step,
            samples_B=pending.samples(),
            scores_B=pending.scores_B,
            rewards=pending.table,
            advantages=compute_advantages(pending.table.sums_B, h.rollouts_per_prompt, h.scale_rewards),
            rollout_seconds=pending.rollout_seconds,
            score_wait_seconds=pending.score_wait_seconds,
            finite=not pending.non_finite,
        )
        self._ledger.take_rollout(rollout)
        self._on_scored(rollout)
        if self._rules.must_be_repeated(rollout):
            self._leave_step()
        hidden_B = torch.tensor(
            [
                h.mask_truncated and sample.completion.finish_reason is FinishReason.LENGTH
                for sample in rollout.samples_B
            ]
        )
        return mask_batch(batch, rollout.advantages, hidden_B, h.loss_type)

    def _leave_step(self) -> None:
        """Sees to it that a later attempt begins with this step, in which nothing has moved yet."""
        self._ledger.is_repeated = True
        if self.state.global_step not in (self._rules.first_step, self._saved_step):
            self._save_checkpoint(self.model_wrapped, None)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return [list(prompt.token_ids) for prompt in self._pending.prompts_B], None, {}

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: None,
        multimodal_fields: dict[str, Any],
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[list[list[int]], None]:
        began = time.perf_counter()
        pending = self._pending
        try:
            with unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gradient_checkpointing_kwargs=GRADIENT_CHECKPOINTING_KWARGS,
            ) as model:
                result = self._policy_rollout(
                    model,
                    prompt_ids,
                    global_indices_B=[pending.first_index + b for b in range(len(prompt_ids))],
                    uniforms=KeyedUniforms(self._hyperparameters.seed, pending.step),
                    settings=self._rollout_settings,
                    on_finish=self._send_to_scorer,
                    should_stop=lambda: self._watch.cancel_requested,
                )
        except RolloutStopped:
            self._watch.check()
            raise
        for b in result.non_finite_rows:
            pending.non_finite.add(b)
            self._note_sample(FinishedRow(b, tuple(result.token_ids_B[b]), FinishReason.UNKNOWN))
        pending.token_ids_B = result.token_ids_B
        pending.order_B = order_rows(
            prompt_ids,
            [len(token_ids) for token_ids in result.token_ids_B],
            self._hyperparameters.loss_type,
            share_prompts=self.prompt_sharing.exact,
        )
        pending.rollout_seconds = time.perf_counter() - began
        return result.token_ids_B, None

    def _send_to_scorer(self, row: FinishedRow) -> None:
        sample = self._note_sample(row)
        submit(self._scorer, sample, step=self._pending.step, group_size=self._plan.group_size)

    def _note_sample(self, row: FinishedRow) -> Sample:
        pending = self._pending
        prompt = pending.prompts_B[row.index]
        index = pending.first_index + row.index
        text, raw_text = decode_completion(self._tokenizer, row.token_ids, row.finish_reason)
        sample = Sample(
            group_id=f"{pending.step}-g{index // self._plan.group_size}",
            prompt=prompt,
            completion=Completion(
                completion_id=f"{pending.step}-{index}",
                text=text,
                token_count=len(row.token_ids),
                finish_reason=row.finish_reason,
                prefill=prompt.prefill,
                raw_text=raw_text,
            ),
        )
        pending.samples_by_row[row.index] = sample
        return sample

    def _calculate_rewards(
        self, inputs: object, prompts: object, completions: object, completion_ids_list: object
    ) -> torch.Tensor:
        pending = self._pending
        if not pending.non_finite:
            self._pass_ahead()
        began = time.perf_counter()
        if pending.non_finite:
            # The step will be skipped whole: nothing is waited for, and what is under way is given up.
            sent = [s for b, s in pending.samples_by_row.items() if b not in pending.non_finite]
            self._scorer.take([sample.completion.completion_id for sample in sent])
            pending.scores_B = [None] * len(pending.prompts_B)
        else:
            pending.scores_B = collect(self._scorer, pending.samples(), self._watch)
        pending.score_wait_seconds = time.perf_counter() - began
        pending.table = tabulate(pending.scores_B, self._reward_weights)
        rewards_BF = torch.from_numpy(pending.table.rewards_BF).to(self.accelerator.device, torch.float32)
        gathered: torch.Tensor = gather(rewards_BF)
        return gathered

    def _pass_ahead(self) -> None:
        """Has the policy score the first micro-batch now, while its rewards are computed elsewhere."""
        pending = self._pending
        rows = pending.order_B[: self._plan.micro_batch_size].tolist()
        input_ids, mask, completion_width = padded_rows(
            [pending.prompts_B[b].token_ids for b in rows],
            [pending.token_ids_B[b] for b in rows],
            self._rollout_settings.pad_token_id,
            self.accelerator.device,
        )
        logps_BT, entropies_BT = self._score_tokens(
            self.model_wrapped, input_ids, mask, completion_width, len(rows), with_entropy=True
        )
        assert entropies_BT is not None
        self._ahead = logps_BT, entropies_BT

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **_multimodal: None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        logps_BT: torch.Tensor
        entropies_BT: torch.Tensor | None
        # Only the policy's passes ask for entropies; the loss comes next.
        if compute_entropy and self._ahead is not None:
            # Which completions would be scored was not known then.
            hidden_BT = attention_mask[:, -logits_to_keep:] == 0
            padding = (0, logits_to_keep - self._ahead[0].size(1))
            logps_BT, entropies_BT = (pad(x_BT, padding).masked_fill(hidden_BT, 0.0) for x_BT in self._ahead)
            self._ahead = None
        else:
            rows_per_pass = batch_size or len(input_ids)
            logps_BT, entropies_BT = self._score_tokens(
                model, input_ids, attention_mask, logits_to_keep, rows_per_pass, with_entropy=compute_entropy
            )
        if entropies_BT is not None:
            self._policy_pass = logps_BT.detach(), entropies_BT.detach()
        return logps_BT, entropies_BT, None

    def _score_tokens(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        completion_width: int,
        rows_per_pass: int,
        *,
        with_entropy: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return token_log_probs(
            model,
            self.accelerator,
            input_ids,
            attention_mask,
            completion_width,
            rows_per_pass=rows_per_pass,
            with_positions=self._takes_positions,
            with_entropy=with_entropy,
            share_prompts=self.prompt_sharing.exact,
        )

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        loss: torch.Tensor = super()._compute_loss(model, inputs) * inputs[LOSS_SCALE]  # type: ignore[no-untyped-call]
        self._ledger.statistics.add(inputs, loss.detach(), *self._policy_pass)
        return loss


@dataclass
class _PendingRollout:
    """What accumulates between the rows that TRL hands in and the scored rollout."""

    step: int
    first_index: int
    prompts_B: Sequence[PreparedPrompt]
    samples_by_row: dict[int, Sample] = field(default_factory=dict)
    token_ids_B: Sequence[Sequence[int]] = ()
    order_B: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    non_finite: set[int] = field(default_factory=set)
    scores_B: Sequence[CompletionScores | None] = field(default_factory=list)
    table: RewardTable = field(default_factory=lambda: tabulate([], {}))
    rollout_seconds: float = 0.0
    score_wait_seconds: float = 0.0

    def samples(self) -> list[Sample]:
        """The samples in the order of the batch."""
        return [self.samples_by_row[b] for b in range(len(self.prompts_B))]


def _never_called(name: str) -> Callable[..., list[float | None]]:
    def reward(**_: object) -> list[float | None]:
        raise AssertionError("rewards come from the scorer")

    reward.__name__ = name
    return reward
