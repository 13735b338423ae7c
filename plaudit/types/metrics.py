"""Names of the metrics of an optimizer step. docs/metrics.md says what each means and how TRL calls it."""

from __future__ import annotations

from typing import Final

REWARD_MEAN: Final = "reward_mean"
REWARD_STD: Final = "reward_std"
KL_DIV: Final = "kl_div"
LOSS: Final = "loss"
RESPONSE_LENGTH_MEAN: Final = "response_length_mean"
POLICY_ENTROPY: Final = "policy_entropy"

HEADLINE_METRICS: Final = (REWARD_MEAN, REWARD_STD, KL_DIV, LOSS, RESPONSE_LENGTH_MEAN, POLICY_ENTROPY)
"""The six names that are fixed for ever."""

REWARD_STD_BATCH: Final = "reward_std_batch"
RESPONSE_LENGTH_MAX: Final = "response_length_max"
TRUNCATED_FRACTION: Final = "truncated_fraction"
ZERO_STD_GROUP_FRACTION: Final = "zero_std_group_fraction"
LEARNING_RATE: Final = "learning_rate"
GRAD_NORM: Final = "grad_norm"
CLIP_FRACTION: Final = "clip_fraction"
UNSCORED_FRACTION: Final = "unscored_fraction"
NOT_APPLICABLE_FRACTION: Final = "not_applicable_fraction"
"""Completions to which no reward applied; unscored, but counted apart."""
SMALL_GROUP_FRACTION: Final = "small_group_fraction"
"""Groups with fewer than two scored completions; they teach nothing."""
STEP_SKIPPED: Final = "step_skipped"
"""1 where the step left weights and optimizer as they were: for want of scores, or it was not finite."""
STEP_NOT_FINITE: Final = "step_not_finite"
"""1 where that was because the loss, the gradient or a logit was not finite."""
PROMPTS_TRUNCATED: Final = "prompts_truncated"
TRAINED_TOKENS: Final = "trained_tokens"
"""Tokens of a step of sft that were learnt to be written."""
TOKEN_ACCURACY: Final = "token_accuracy"  # noqa: S105
"""Share of them that were the most probable one before the step."""
EVAL_REWARD_MEAN: Final = "eval/reward_mean"
"""Mean weighted sum over the scored completions of an evaluation's held-out prompts."""
EVAL_REWARD_STD: Final = "eval/reward_std"
EVAL_UNSCORED_FRACTION: Final = "eval/unscored_fraction"
EVAL_NOT_APPLICABLE_FRACTION: Final = "eval/not_applicable_fraction"
EVAL_RESPONSE_LENGTH_MEAN: Final = "eval/response_length_mean"
EVAL_TRUNCATED_FRACTION: Final = "eval/truncated_fraction"
EVAL_SECONDS: Final = "eval_seconds"
STEP_SECONDS: Final = "step_seconds"
ROLLOUT_SECONDS: Final = "rollout_seconds"
SCORE_WAIT_SECONDS: Final = "score_wait_seconds"
TRAIN_SECONDS: Final = "train_seconds"
TOKENS_PER_SECOND: Final = "tokens_per_second"

EVALUATION_METRICS: Final = frozenset(
    {
        EVAL_REWARD_MEAN,
        EVAL_REWARD_STD,
        EVAL_UNSCORED_FRACTION,
        EVAL_NOT_APPLICABLE_FRACTION,
        EVAL_RESPONSE_LENGTH_MEAN,
        EVAL_TRUNCATED_FRACTION,
        EVAL_SECONDS,
    }
)
"""Metrics of an evaluation, which no step has. `eval/reward/{name}/*` are others."""

SFT_METRICS: Final = frozenset({TRAINED_TOKENS, TOKEN_ACCURACY})
"""Metrics that steps of sft alone have."""

TIMING_METRICS: Final = frozenset(
    {STEP_SECONDS, ROLLOUT_SECONDS, SCORE_WAIT_SECONDS, TRAIN_SECONDS, TOKENS_PER_SECOND, EVAL_SECONDS}
)
"""Metrics that two equal runs do not share. `reward/{name}/latency_p95_seconds` is another."""


def reward_metric(name: str, part: str) -> str:
    """Name of a metric of one reward; `part` is mean, std, failed_fraction, latency_p95_seconds or
    protocol_errors."""
    return f"reward/{name}/{part}"


def eval_reward_metric(name: str, part: str) -> str:
    """Name of a metric of one reward in an evaluation; `part` is mean, failed_fraction or
    canary_pass_fraction."""
    return f"eval/reward/{name}/{part}"
