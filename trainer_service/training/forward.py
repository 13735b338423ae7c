"""Log-probabilities and entropies of completions, computed where there are tokens and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.functional import pad

from trainer_service.training._rollout_loop import base_model
from trainer_service.training.overrides import cache_under_checkpointing, completion_positions_only
from trainer_service.training.shared_prompts import PromptStates, distinct_prompts

CPU_TOKENS_PER_PASS = 2048
"""More at once than the caches of a processor hold makes a pass slower, not faster."""

_IGNORED = -100


def token_log_probs(
    model: nn.Module,
    accelerator: Accelerator,
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_width: int,
    *,
    rows_per_pass: int,
    with_positions: bool,
    with_entropy: bool,
    share_prompts: bool,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of each of the last `completion_width` tokens of B rows, and the entropy there.

    Both have the shape [B, completion width], and are 0 where the mask is.

    `input_ids` and `attention_mask` are [B, prompt + completion width]: prompts padded on the left,
    completions on the right. Rows of like length pass together, at most `rows_per_pass`, cut to the columns
    that one of them uses. `with_positions`: the model takes position_ids. `share_prompts`: a prompt that
    several rows have is read once, by a model for which `check_prompt_sharing` found that exact. `model`
    carries TRL's fused LM head, which scores only the positions whose label counts.
    """
    prompt_width = input_ids.size(1) - completion_width
    tokens_per_pass = CPU_TOKENS_PER_PASS if input_ids.device.type == "cpu" else math.inf
    limits = _Limits(rows_per_pass, tokens_per_pass)
    passes = _Passes(model, accelerator, input_ids, attention_mask, prompt_width, with_positions)
    order, logps, entropies = [], [], []
    for rows_R, prompts in passes.by_prompt(limits) if share_prompts else passes.as_they_are():
        lengths_R = attention_mask[rows_R, 0 if prompts is None else prompts.width :].sum(dim=1)
        for places in limits.divide(lengths_R):
            output, width = passes.score(rows_R[places], prompts)
            padding = (0, completion_width - width)
            order.append(rows_R[places])
            logps.append(pad(output.log_probs[:, -width:], padding))
            if with_entropy:
                entropies.append(pad(output.entropy[:, -width:], padding))
    back_B = torch.argsort(torch.cat(order))
    return (
        torch.cat(logps).index_select(0, back_B),
        torch.cat(entropies).index_select(0, back_B) if with_entropy else None,
    )


def padded_rows(
    prompt_token_ids_B: Sequence[Sequence[int]],
    completion_token_ids_B: Sequence[Sequence[int]],
    pad_token_id: int,
    device: torch.device,
) -> tuple[Tensor, Tensor, int]:
    """Returns B rows as `token_log_probs` takes them: input ids, attention mask, width of the completions."""
    prompt_width = max(map(len, prompt_token_ids_B))
    width = max(map(len, completion_token_ids_B))
    input_ids, mask = [], []
    for prompt, completion in zip(prompt_token_ids_B, completion_token_ids_B, strict=True):
        left, right = prompt_width - len(prompt), width - len(completion)
        input_ids.append([pad_token_id] * left + [*prompt, *completion] + [pad_token_id] * right)
        mask.append([0] * left + [1] * (len(prompt) + len(completion)) + [0] * right)
    return torch.tensor(input_ids, device=device), torch.tensor(mask, device=device), width


@dataclass(frozen=True, slots=True)
class _Limits:
    """What passes at once, at most; one row always may."""

    rows: int
    tokens: float

    def divide(self, lengths_R: Tensor) -> Iterator[Tensor]:
        """Places of rows of these lengths, pass by pass, longest first."""
        order_R = torch.argsort(lengths_R, descending=True, stable=True)
        lengths = lengths_R[order_R].tolist()
        done = 0
        while done < len(lengths):
            size = max(int(min(self.tokens // max(lengths[done], 1), self.rows)), 1)
            yield order_R[done : done + size]
            done += size


@dataclass(frozen=True, slots=True)
class _ReadPrompts:
    """Prompts that were read, from column `first` up to `width`; row b has prompt number `prompt_B[b]`."""

    states: PromptStates
    first: int
    width: int
    prompt_B: Tensor


@dataclass(frozen=True, slots=True)
class _Passes:
    """Passes of a model over padded rows, of which completions begin at column `prompt_width`."""

    model: nn.Module
    accelerator: Accelerator
    input_ids: Tensor
    attention_mask: Tensor
    prompt_width: int
    with_positions: bool

    def as_they_are(self) -> Iterator[tuple[Tensor, None]]:
        """All rows; each brings its prompt along."""
        yield torch.arange(len(self.input_ids), device=self.input_ids.device), None

    def by_prompt(self, limits: _Limits) -> Iterator[tuple[Tensor, _ReadPrompts | None]]:
        """The rows of some prompts after the other, and these prompts, read for them."""
        prompt_mask = self.attention_mask[:, : self.prompt_width]
        first_P, prompt_B = distinct_prompts(self.input_ids[:, : self.prompt_width], prompt_mask)
        if len(first_P) == len(prompt_B) or self.prompt_width == 1:
            yield from self.as_they_are()
            return
        most_rows = int(prompt_B.bincount().max())
        for prompts in _Limits(max(limits.rows // most_rows, 1), limits.tokens).divide(
            prompt_mask[first_P].sum(dim=1)
        ):
            # Rows of other prompts get a number as well, which nobody asks for.
            number_P = torch.zeros_like(first_P).index_copy(
                0, prompts, torch.arange(len(prompts), device=prompts.device)
            )
            rows_R = torch.isin(prompt_B, prompts).nonzero().flatten()
            yield rows_R, self._read(first_P[prompts], number_P[prompt_B])

    def _read(self, rows_P: Tensor, prompt_B: Tensor) -> _ReadPrompts | None:
        """Reads prompts but for the last token, with which the passes over completions begin."""
        width = self.prompt_width - 1
        first = _first_column(self.attention_mask[rows_P])
        if first == width:
            return None
        states = PromptStates(base_model(self.accelerator.unwrap_model(self.model)).config)
        # No position is scored here; most models take no less than one.
        self._run(rows_P, first, first, width, cache=states.recorder(), use_cache=False, logits_to_keep=1)
        return _ReadPrompts(states, first, width, prompt_B)

    def score(self, rows_R: Tensor, prompts: _ReadPrompts | None) -> tuple[Any, int]:
        """Returns TRL's output, and how many of its last positions are those of completions."""
        mask = self.attention_mask[rows_R]
        # One column of completions stays even where all of them are masked, so that the result is connected
        # to the model.
        last = max(int(mask.any(dim=0).nonzero()[-1]), self.prompt_width)
        first = _first_column(mask) if prompts is None else prompts.first
        begin = first if prompts is None else prompts.width
        # A token is predicted at the position before it; at the last one, nothing is.
        labels = self.input_ids[rows_R, begin + 1 : last + 1]
        labels = labels.masked_fill(mask[:, begin + 1 : last + 1] == 0, _IGNORED)
        labels[:, : self.prompt_width - 1 - begin] = _IGNORED
        cache = {} if prompts is None else {"cache": prompts.states.reader(prompts.prompt_B[rows_R])}
        output = self._run(rows_R, first, begin, last, shift_labels=labels, fused_lm_head=True, **cache)
        return output, last + 1 - self.prompt_width

    def _run(self, rows: Tensor, first: int, begin: int, end: int, **arguments: Any) -> Any:
        """Has the tokens of columns `begin` to `end` pass; they attend to those from column `first` on."""
        mask = self.attention_mask[rows, :end]
        if self.with_positions:
            # By default a model counts positions from the padding on, where learned positions would differ
            # from those that the rollout saw.
            arguments["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, begin:]
        with self.accelerator.autocast(), completion_positions_only(), cache_under_checkpointing():
            return self.model(
                input_ids=self.input_ids[rows, begin:end], attention_mask=mask[:, first:], **arguments
            )


def _first_column(mask: Tensor) -> int:
    return int(mask.any(dim=0).nonzero()[0])
