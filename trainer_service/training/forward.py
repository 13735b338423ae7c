"""Log-probabilities and entropies of completions, computed where there are tokens and nowhere else."""

from __future__ import annotations

import math

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import pad

from trainer_service.training.overrides import completion_positions_only

CPU_TOKENS_PER_PASS = 2048
"""More at once than the caches of a processor hold makes a pass slower, not faster."""

_IGNORED = -100


def token_log_probs(
    model: nn.Module,
    accelerator: Accelerator,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    completion_width: int,
    *,
    rows_per_pass: int,
    with_positions: bool,
    with_entropy: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability of each of the last `completion_width` tokens of B rows, and the entropy there.

    Both have the shape [B, completion width], and are 0 where the mask is.

    `input_ids` and `attention_mask` are [B, prompt + completion width]: prompts padded on the left,
    completions on the right. Rows of like length pass together, at most `rows_per_pass`, cut to the columns
    that one of them uses. `with_positions`: the model takes position_ids. `model` carries TRL's fused LM
    head, which scores only the positions whose label counts.
    """
    total_width = input_ids.size(1)
    prompt_width = total_width - completion_width
    lengths_B = attention_mask.sum(dim=1)
    order_B = torch.argsort(lengths_B, descending=True, stable=True)
    logps, entropies = [], []
    sizes = _pass_sizes(lengths_B[order_B].tolist(), rows_per_pass, input_ids.device)
    for rows in torch.split(order_B, sizes):
        used = attention_mask[rows].any(dim=0).nonzero()
        # One column of completions stays even where all of them are masked, so that the result is connected
        # to the model.
        first, last = int(used[0]), max(int(used[-1]), prompt_width)
        ids = input_ids[rows, first : last + 1]
        mask = attention_mask[rows, first : last + 1]
        labels = ids.masked_fill(mask == 0, _IGNORED)
        labels[:, : prompt_width - first] = _IGNORED
        arguments = {"input_ids": ids, "attention_mask": mask}
        if with_positions:
            # By default a model counts positions from the padding on, where learned positions would differ
            # from those that the rollout saw.
            arguments["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        with accelerator.autocast(), completion_positions_only():
            output = model(**arguments, labels=labels, fused_lm_head=True)
        width = last + 1 - prompt_width
        padding = (0, completion_width - width)
        logps.append(pad(output.log_probs[:, -width:], padding))
        if with_entropy:
            entropies.append(pad(output.entropy[:, -width:], padding))
    back_B = torch.argsort(order_B)
    return torch.cat(logps)[back_B], torch.cat(entropies)[back_B] if with_entropy else None


def _pass_sizes(lengths_B: list[int], rows_per_pass: int, device: torch.device) -> list[int]:
    """How many rows go into each pass, for rows that come longest first."""
    tokens_per_pass = CPU_TOKENS_PER_PASS if device.type == "cpu" else math.inf
    sizes: list[int] = []
    done = 0
    while done < len(lengths_B):
        fitting = max(int(min(tokens_per_pass // lengths_B[done], rows_per_pass)), 1)
        sizes.append(min(fitting, len(lengths_B) - done))
        done += sizes[-1]
    return sizes
