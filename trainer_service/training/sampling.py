"""Sampling of tokens from keyed randomness.

A completion's tokens depend on (seed, purpose, step, global index of the completion) and on the policy, and
on nothing else: not on the order of the batch, the number of ranks, or what else was sampled before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_BLOCK_LENGTH = 256
"""Uniforms drawn at once for a completion. Part of the stream's definition only as a multiple of 4."""

_RUN_LENGTH = 128
"""Tokens whose weights are summed before one of them is looked for."""

_PHILOX_WORDS = 4
"""64-bit numbers that one count of Philox4x64 gives."""


class NonFiniteLogits(ArithmeticError):
    """Logits hold NaN or an infinity, so there is no distribution to sample from."""

    def __init__(self, rows: tuple[int, ...]) -> None:
        """`rows` are positions in the batch of logits."""
        super().__init__(f"the logits of rows {list(rows)} are not finite")
        self.rows = rows


class KeyedUniforms:
    """Uniform numbers in [0, 1), a stream of its own for every completion of a step.

    Counter-based (Philox4x64-10, Salmon et al., SC11): the number at a position is computed from its key, not
    from what was drawn before it.
    """

    def __init__(self, seed: int, step: int, purpose: str = "train") -> None:
        """`step` is the optimizer step that the rollout is for; streams of other purposes are unrelated."""
        digest = hashlib.sha256(purpose.encode()).digest()
        self._key = np.array([seed, int.from_bytes(digest[:8], "little")], dtype=np.uint64)
        self._step = step
        self._blocks: dict[int, tuple[int, np.ndarray]] = {}

    def draw(self, global_indices_B: Sequence[int] | Tensor, position: int) -> Tensor:
        """Returns float64 [B] on the CPU: the `position`-th uniform (from 0) of each completion.

        `global_indices_B` holds the completions' indices in the global batch. Draws may come in any order and
        be repeated; going up position by position is fast.
        """
        indices = global_indices_B.tolist() if isinstance(global_indices_B, Tensor) else global_indices_B
        block, offset = divmod(position, _BLOCK_LENGTH)
        uniforms = np.fromiter(
            (self._block(index, block)[offset] for index in indices), dtype=np.float64, count=len(indices)
        )
        return torch.from_numpy(uniforms)

    def _block(self, global_index: int, block: int) -> np.ndarray:
        held = self._blocks.get(global_index)
        if held is not None and held[0] == block:
            return held[1]
        first_count = block * (_BLOCK_LENGTH // _PHILOX_WORDS)
        counter = np.array([first_count, global_index, self._step, 0], dtype=np.uint64)
        bits = np.random.Philox(key=self._key, counter=counter).random_raw(_BLOCK_LENGTH)
        # The upper 53 bits: what a float64 in [0, 1) can hold.
        uniforms: np.ndarray = (bits >> np.uint64(11)) * 2.0**-53
        self._blocks[global_index] = (block, uniforms)
        return uniforms


def require_finite(logits_BV: Tensor) -> None:
    """Raises NonFiniteLogits, which names the rows, unless every logit is a finite number."""
    # NaN is the least and the largest of whatever it is among.
    low_B, high_B = logits_BV.aminmax(dim=-1)
    finite_B = low_B.isfinite() & high_B.isfinite()
    if not bool(finite_B.all()):
        raise NonFiniteLogits(tuple((~finite_B).nonzero().flatten().tolist()))


def sample_tokens(
    logits_BV: Tensor, uniforms_B: Tensor, *, temperature: float, top_p: float, top_k: int
) -> Tensor:
    """Returns int64 [B]: for each row the token at which the cumulative distribution passes its uniform.

    Temperature is applied first, then top_k (0: all; ties at the k-th are kept), then top_p (1: all), as
    transformers orders its warpers. A row's token depends on that row's logits and uniform alone.

    Raises NonFiniteLogits, which names the rows.
    """
    require_finite(logits_BV)
    # Half precision cannot hold a cumulative distribution over a vocabulary.
    scores_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32)) / temperature
    if 0 < top_k < scores_BV.shape[-1]:
        kth_B1 = scores_BV.topk(top_k, dim=-1).values[:, -1:]
        scores_BV = scores_BV.masked_fill(scores_BV < kth_B1, -torch.inf)
    weights_BV = (scores_BV - scores_BV.amax(dim=-1, keepdim=True)).exp()
    if top_p < 1.0:
        weights_BV = _keep_nucleus(weights_BV, top_p)
    # First the run of tokens, then the token in it: a cumulative sum in float64 over a whole vocabulary takes
    # a tenth of the time of a small model's rollout.
    if padding := -weights_BV.shape[-1] % _RUN_LENGTH:
        weights_BV = torch.nn.functional.pad(weights_BV, (0, padding))
    runs_BRL = weights_BV.reshape(len(weights_BV), -1, _RUN_LENGTH)
    cumulative_BR = runs_BRL.sum(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    targets_B1 = uniforms_B.to(weights_BV.device)[:, None] * cumulative_BR[:, -1:]
    run_B1 = _first_above(cumulative_BR, targets_B1)
    before_B1 = torch.where(run_B1 > 0, cumulative_BR.gather(-1, (run_B1 - 1).clamp(min=0)), 0.0)
    within_BL = runs_BRL.take_along_dim(run_B1[:, :, None], dim=1)[:, 0].cumsum(dim=-1, dtype=torch.float64)
    return (run_B1 * _RUN_LENGTH + _first_above(within_BL, targets_B1 - before_B1)).flatten()


def _first_above(cumulative_BN: Tensor, targets_B1: Tensor) -> Tensor:
    """Returns int64 [B, 1]: where each row first passes its target.

    Rounding may lift a target to the row's end, or a little beyond: then the last entry with any weight is
    meant.
    """
    ends_B1 = cumulative_BN[:, -1:].contiguous()
    return torch.minimum(
        torch.searchsorted(cumulative_BN, targets_B1, right=True), torch.searchsorted(cumulative_BN, ends_B1)
    )


def _keep_nucleus(weights_BV: Tensor, top_p: float) -> Tensor:
    """Sets to 0 what lies outside the smallest set of likeliest tokens that holds the share `top_p`."""
    ascending_BV, tokens_BV = weights_BV.sort(dim=-1, stable=True)
    mass_BV = ascending_BV.cumsum(dim=-1, dtype=torch.float64)
    dropped_BV = mass_BV <= (1.0 - top_p) * mass_BV[:, -1:]
    dropped_BV[:, -1] = False
    return weights_BV.masked_fill(dropped_BV.scatter(-1, tokens_BV, dropped_BV), 0.0)
