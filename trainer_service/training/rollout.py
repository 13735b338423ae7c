"""Rollouts: completions sampled from the policy, each handed on at the token with which it ends.

Callable without a trainer step (preflight, evaluation): randomness is keyed, and the model is left in the
mode in which it was found. docs/rollout.md tells how it works.
"""

from trainer_service.training._rollout_check import Rollout, RolloutCheck, check_against_generate
from trainer_service.training._rollout_generate import roll_out_with_generate
from trainer_service.training._rollout_loop import roll_out
from trainer_service.training._rollout_rows import (
    FinishedRow,
    RolloutResult,
    RolloutSettings,
    RolloutStopped,
)

__all__ = [
    "FinishedRow",
    "Rollout",
    "RolloutCheck",
    "RolloutResult",
    "RolloutSettings",
    "RolloutStopped",
    "check_against_generate",
    "roll_out",
    "roll_out_with_generate",
]
