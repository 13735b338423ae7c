"""What could not be scored leaves the loss, so that the step is the one of the batch without it.

TRL takes a completion without a reward out of the baseline only: it goes on to count in the divisor and in
the KL term. Here its mask becomes 0 before the batch is divided into micro-batches. Losses that divide by
rows then still divide by all of them, which LOSS_SCALE mends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from trl.trainer.utils import split_tensor_dict

from trainer_service.training.advantages import Advantages

Batch: TypeAlias = dict[str, Any]
LossType: TypeAlias = Literal["dapo", "grpo", "dr_grpo", "bnpo"]

LOSS_SCALE = "loss_scale"
"""Key of the factor by which the loss of a micro-batch is multiplied."""

_PER_TOKEN = ("old_per_token_logps", "ref_per_token_logps")
_DIVIDED_BY_ROWS = ("grpo", "dr_grpo")


def mask_batch(batch: Batch, advantages: Advantages, hidden_B: torch.Tensor, loss_type: LossType) -> Batch:
    """Gives TRL's batch of B completions our advantages, and takes out what teaches nothing.

    Completions that `advantages` does not keep leave the loss and its divisors. Those of `hidden_B` (bool,
    truncated ones where the job masks them) leave the loss but go on to count as rows, as in TRL.
    """
    device = batch["completion_mask"].device
    kept_B = torch.from_numpy(advantages.kept_B).to(device)
    taught_B = kept_B & ~hidden_B.to(device)
    mask_BT = batch["completion_mask"] * taught_B.unsqueeze(1).to(batch["completion_mask"].dtype)
    masked = {
        **batch,
        "completion_mask": mask_BT,
        "advantages": torch.from_numpy(advantages.advantages_B).to(device, torch.float32),
        "num_items_in_batch": mask_BT.sum(),
        LOSS_SCALE: torch.tensor(1.0, device=device),
    }
    for key in _PER_TOKEN:
        if key in batch:
            # The policy's log-probabilities will be 0 there; the exponential of a difference could overflow,
            # and infinity times a mask of 0 is NaN.
            masked[key] = batch[key] * mask_BT
    if loss_type in _DIVIDED_BY_ROWS:
        rows_kept = max(int(kept_B.sum()), 1)
        masked[LOSS_SCALE] = torch.tensor(len(kept_B) / rows_kept, device=device)
    return masked


def order_rows(
    prompt_token_ids_B: Sequence[Sequence[int]],
    lengths_B: Sequence[int],
    loss_type: LossType,
    *,
    share_prompts: bool,
) -> torch.Tensor:
    """The order, int64 [B], in which B completions of these lengths are divided into micro-batches.

    Completions of like length come together, so that each micro-batch can be trimmed; the longest come first,
    so that a lack of memory shows at once. Where a pass over a prompt is shared, those of a prompt come
    together. bnpo divides by the tokens of a micro-batch, which makes its make-up part of the loss: there
    rows are shuffled, as TRL does.
    """
    if loss_type == "bnpo":
        return torch.randperm(len(lengths_B))
    prompts_B = [tuple(prompt) if share_prompts else b for b, prompt in enumerate(prompt_token_ids_B)]
    longest: dict[object, tuple[int, int]] = {}
    for prompt, length, ids in zip(prompts_B, lengths_B, prompt_token_ids_B, strict=True):
        longest[prompt] = max(longest.get(prompt, (0, 0)), (length, len(ids)))
    number = {prompt: place for place, prompt in enumerate(longest)}
    rows = sorted(
        range(len(lengths_B)),
        key=lambda b: (*longest[prompts_B[b]], -number[prompts_B[b]], lengths_B[b], -b),
        reverse=True,
    )
    return torch.tensor(rows)


def micro_batches(batch: Batch, order_B: torch.Tensor, count: int, loss_type: LossType) -> list[Batch]:
    """Divides a masked batch, in this order, into `count` micro-batches of equal numbers of rows.

    bnpo takes a mean over micro-batches; those without a token leave it.
    """
    order_B = order_B.to(batch["completion_mask"].device)
    ordered = {key: value[order_B] if value.ndim else value for key, value in batch.items()}
    parts: list[Batch] = split_tensor_dict(ordered, count)
    if loss_type != "bnpo":
        return parts
    with_tokens = sum(bool(part["completion_mask"].any()) for part in parts)
    scale = torch.tensor(count / max(with_tokens, 1), device=order_B.device)
    return [{**part, LOSS_SCALE: scale} for part in parts]
