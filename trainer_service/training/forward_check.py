"""Start-up check: do completions that share one pass over their prompt score as they do with their own?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from trainer_service.training._rollout_loop import base_model, missing_arguments
from trainer_service.training.forward import padded_rows, token_log_probs
from trainer_service.training.shared_prompts import is_all_attention

_PROMPT_TOKENS = 48
"""The check shall take a moment, not a share of the run."""

_COMPLETION_LENGTHS = (7, 3, 5)
"""Of the completions of each prompt, in tokens."""

_PARAMETERS = 8
"""How many of the model's first parameters have their gradients compared."""

_EACH_ITS_OWN = "every completion reads its prompt"

_TOLERANCE = {True: 5e-2, False: 1e-3}
"""What rounding may do, as a share of what is compared: half precision, or float32."""


@dataclass(frozen=True, slots=True)
class PromptSharing:
    """What the check found; `detail` says why, for the log."""

    exact: bool
    detail: str


def check_prompt_sharing(
    model: nn.Module, accelerator: Accelerator, prompts: Sequence[Sequence[int]], pad_token_id: int
) -> PromptSharing:
    """Compares log-probabilities and gradients of both ways on a few short rows, in training mode.

    `prompts` are token ids, of which the first ones of different lengths serve. `model` carries TRL's fused
    LM head, and checkpoints its layers or not as it will in training. It gets its mode back, and no gradient.
    """
    base = base_model(model)
    name = type(base).__name__
    lacking = missing_arguments(base)
    if lacking:
        return PromptSharing(False, f"{name} takes no {', '.join(lacking)}: {_EACH_ITS_OWN}")
    if not is_all_attention(base.config):
        return PromptSharing(False, f"{name} keeps more than keys and values: {_EACH_ITS_OWN}")
    rows = padded_rows(*_rows(prompts), pad_token_id, accelerator.device)
    was_training = model.training
    model.train()
    try:
        ways = [_score(model, accelerator, rows, share_prompts) for share_prompts in (False, True)]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return PromptSharing(False, f"{name} does not run with shared prompts ({error!r}): {_EACH_ITS_OWN}")
    finally:
        model.train(was_training)
    half = base.dtype != torch.float32 or accelerator.mixed_precision != "no"
    for what, alone, shared in zip(("log-probabilities", "gradients"), *ways, strict=True):
        difference = float((alone - shared).norm() / alone.norm())
        if not difference <= _TOLERANCE[half]:
            return PromptSharing(
                False, f"{name} with shared prompts gives other {what} (by {difference:.1e}): {_EACH_ITS_OWN}"
            )
    return PromptSharing(True, f"{name} scores completions alike where they share one pass over their prompt")


def _rows(prompts: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Two prompts of different lengths, several times each, and a completion for each time."""
    first = list(prompts[0][-_PROMPT_TOKENS:])
    other = next(
        (list(p[-_PROMPT_TOKENS:]) for p in prompts if len(p) != len(prompts[0])), [*first, first[0]]
    )
    rows = [(prompt, length) for prompt in (first, other) for length in _COMPLETION_LENGTHS]
    # Any tokens will do that differ from row to row.
    completions = [[prompt[-1 - i * length % len(prompt)] for i in range(length)] for prompt, length in rows]
    return [prompt for prompt, _ in rows], completions


def _score(
    model: nn.Module, accelerator: Accelerator, rows: tuple[Tensor, Tensor, int], share_prompts: bool
) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities and the gradients of their sum, each in one dimension."""
    input_ids, attention_mask, completion_width = rows
    logps_BT, _ = token_log_probs(
        model,
        accelerator,
        input_ids,
        attention_mask,
        completion_width,
        rows_per_pass=len(input_ids),
        with_positions=True,
        with_entropy=False,
        share_prompts=share_prompts,
    )
    parameters = [p for p in model.parameters() if p.requires_grad][:_PARAMETERS]
    gradients = torch.autograd.grad(logps_BT.sum(), parameters, materialize_grads=True)
    return logps_BT.detach().flatten(), torch.cat([gradient.flatten() for gradient in gradients])
