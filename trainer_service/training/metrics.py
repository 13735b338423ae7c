"""Metrics of a step: what the rollout scored, and what the passes through the policy say of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from plaudit.types import metrics as names
from plaudit.types.scoring import Failed, FinishReason, Scored
from trainer_service.training.advantages import Floats
from trainer_service.training.masking import Batch
from trainer_service.training.samples import ScoredRollout

_NOTHING = float("nan")


def rollout_metrics(rollout: ScoredRollout, reward_names: Iterable[str]) -> dict[str, float]:
    """Metrics of the completions, over all of them; of rewards, over those that were scored."""
    sums = rollout.rewards.sums_B[~np.isnan(rollout.rewards.sums_B)]
    advantages = rollout.advantages
    group_std = advantages.group_std_G[~advantages.small_G]
    lengths = np.array([sample.completion.token_count for sample in rollout.samples_B], dtype=np.float64)
    metrics = {
        names.REWARD_MEAN: mean_of(sums),
        names.REWARD_STD: mean_of(group_std),
        names.REWARD_STD_BATCH: std_of(sums),
        names.ZERO_STD_GROUP_FRACTION: mean_of(advantages.tied_G[~advantages.small_G].astype(np.float64)),
        names.SMALL_GROUP_FRACTION: float(advantages.small_G.mean()),
        names.UNSCORED_FRACTION: float(rollout.rewards.failed_B.mean()),
        names.NOT_APPLICABLE_FRACTION: float(rollout.rewards.not_applicable_B.mean()),
        names.RESPONSE_LENGTH_MEAN: float(lengths.mean()),
        names.RESPONSE_LENGTH_MAX: float(lengths.max()),
        names.TRUNCATED_FRACTION: float(
            np.mean([s.completion.finish_reason is FinishReason.LENGTH for s in rollout.samples_B])
        ),
        names.PROMPTS_TRUNCATED: float(len({s.group_id for s in rollout.samples_B if s.prompt.truncated})),
    }
    for name in reward_names:
        scored = [scores.outcomes[name] for scores in rollout.scores_B if scores is not None]
        values = np.array([s.outcome.value for s in scored if isinstance(s.outcome, Scored)])
        failed = np.array([isinstance(s.outcome, Failed) for s in scored], dtype=np.float64)
        latencies = [s.latency_seconds for s in scored]
        metrics[names.reward_metric(name, "mean")] = mean_of(values)
        metrics[names.reward_metric(name, "std")] = std_of(values)
        metrics[names.reward_metric(name, "failed_fraction")] = mean_of(failed)
        metrics[names.reward_metric(name, "latency_p95_seconds")] = (
            float(np.percentile(latencies, 95)) if latencies else _NOTHING
        )
    return metrics


class PolicyStatistics:
    """Sums over the micro-batches of one step; the means are over the tokens that taught something."""

    def __init__(self, clip_epsilon: float) -> None:
        self._clip_epsilon = clip_epsilon
        self._loss = 0.0
        self._tokens = 0.0
        self._sums = np.zeros(3)

    def add(
        self, batch: Batch, loss: torch.Tensor, logps_BT: torch.Tensor, entropies_BT: torch.Tensor
    ) -> None:
        """Takes in a micro-batch: its share of the step's loss, and what the policy gave for each token."""
        mask_BT = batch["completion_mask"]
        old_BT = batch.get("old_per_token_logps", logps_BT)
        ratio_BT = torch.exp(logps_BT - old_BT)
        advantages_B1 = batch["advantages"].unsqueeze(1)
        clipped_BT = ((ratio_BT < 1 - self._clip_epsilon) & (advantages_B1 < 0)) | (
            (ratio_BT > 1 + self._clip_epsilon) & (advantages_B1 > 0)
        )
        # k3 (arXiv:2402.03300, equation 4): never negative, 0 where both models agree. Where the tokens come
        # from an older policy the ratio makes up for it, as in the loss (use_bias_correction_kl).
        difference_BT = batch.get("ref_per_token_logps", logps_BT) - logps_BT
        kl_BT = (torch.exp(difference_BT) - difference_BT - 1) * ratio_BT
        sums = torch.stack([(x * mask_BT).sum() for x in (entropies_BT, kl_BT, clipped_BT)])
        self._loss += float(loss)
        self._tokens += float(mask_BT.sum())
        self._sums += sums.double().cpu().numpy()

    @property
    def is_finite(self) -> bool:
        """Whether the loss is a number."""
        return bool(np.isfinite(self._loss))

    @property
    def taught_tokens(self) -> float:
        """Tokens in the loss."""
        return self._tokens

    def metrics(self) -> dict[str, float]:
        """Loss, entropy, divergence and clipping of the step; NaN where no token was in the loss."""
        entropy, kl, clipped = self._sums / self._tokens if self._tokens else (_NOTHING,) * 3
        return {
            names.LOSS: self._loss if self._tokens else _NOTHING,
            names.POLICY_ENTROPY: float(entropy),
            names.KL_DIV: float(kl),
            names.CLIP_FRACTION: float(clipped),
        }


def mean_of(values: Floats) -> float:
    """Mean; NaN of nothing."""
    return float(values.mean()) if len(values) else _NOTHING


def std_of(values: Floats) -> float:
    """Standard deviation (n - 1); NaN of fewer than two values, which show no spread."""
    return float(values.std(ddof=1)) if len(values) > 1 else _NOTHING
