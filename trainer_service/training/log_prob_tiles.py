"""The LM head's arithmetic on a processor, in place and in pieces that its caches hold.

TRL scores tokens tile by tile (tokens by vocabulary). On a processor its tiles are larger than any cache, and
every intermediate result is a new one, which takes longer than the matrix products do. These do the same on
the tile itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

TILE_TOKENS, TILE_COLUMNS = 256, 4096
"""Size of a tile: four MiB of float32, so that a product is still in a cache when it is worked on."""

_PIECE = 2**18
"""Logits worked on at once: one MiB."""


def forward_tile(
    tile: Tensor,
    targets: Tensor,
    running_max: Tensor,
    sum_exp: Tensor,
    x_sum_exp: Tensor,
    target_logit: Tensor,
    *,
    vocab_start: int,
    scale: float,
    with_entropy: bool,
) -> None:
    """Takes a tile of raw logits, [N, columns] from token `vocab_start` on, into the running sums, each [N].

    The sums are of exp(z - running_max), and of that times z; `target_logit` becomes z of the target where it
    is in the tile. z is the logit times `scale`. The tile is used up.
    """
    columns = tile.size(1)
    for piece in _pieces(tile):
        z = tile[piece]
        if scale != 1.0:
            z.mul_(scale)
        local = targets[piece] - vocab_start
        target_z = z.gather(1, local.clamp(0, columns - 1).unsqueeze(1)).squeeze(1)
        in_tile = (local >= 0) & (local < columns)
        target_logit[piece] = torch.where(in_tile, target_z, target_logit[piece])
        new_max = torch.maximum(running_max[piece], z.amax(dim=1))
        rescale = torch.exp(running_max[piece] - new_max)
        running_max[piece] = new_max
        exp = z.sub_(new_max.unsqueeze(1)).exp()
        sums = exp.sum(dim=1)
        sum_exp[piece] = sum_exp[piece] * rescale + sums
        if with_entropy:
            x_sum_exp[piece] = x_sum_exp[piece] * rescale + exp.mul_(z).sum(dim=1) + new_max * sums


def backward_tile(
    tile: Tensor, targets: Tensor, log_z: Tensor, grad_logprobs: Tensor, *, vocab_start: int, scale: float
) -> None:
    """Makes a tile of raw logits, [N, columns], the gradient by them of what has `grad_logprobs`, [N]."""
    columns = tile.size(1)
    for piece in _pieces(tile):
        z = tile[piece]
        if scale != 1.0:
            z.mul_(scale)
        weight = grad_logprobs[piece] * scale
        z.sub_(log_z[piece].unsqueeze(1)).exp_().mul_(-weight.unsqueeze(1))
        local = targets[piece] - vocab_start
        in_tile = (local >= 0) & (local < columns)
        z.scatter_add_(
            1, local.clamp(0, columns - 1).unsqueeze(1), torch.where(in_tile, weight, 0.0).unsqueeze(1)
        )


def _pieces(tile: Tensor) -> Iterator[slice]:
    rows = max(_PIECE // tile.size(1), 1)
    return (slice(start, start + rows) for start in range(0, tile.size(0), rows))
