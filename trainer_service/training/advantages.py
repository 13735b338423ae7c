"""Advantages of a rollout: each completion against its group, in float64.

The advantage is (reward - group mean) / (standard deviation + 1e-4), over the completions that were scored
(GRPO, arXiv:2402.03300; the unbiased deviation and the 1e-4 are TRL's). A completion that could not be scored
has no part in it, and a group with fewer than two scored completions has nothing to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
ScaleRewards: TypeAlias = Literal["group", "batch", "none"]

STABILITY = 1e-4
"""Added to the standard deviation, as in TRL."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What the rewards of B completions in G groups teach.

    `advantages_B` is 0 where `kept_B` is False: those completions leave the loss altogether. `group_std_G` is
    NaN for the groups of `small_G`, which have fewer than two scored completions. `tied_G` marks the others
    whose scored completions all have the same reward.
    """

    advantages_B: Floats
    kept_B: Flags
    group_std_G: Floats
    tied_G: Flags
    small_G: Flags


def compute_advantages(
    rewards_B: Sequence[float] | Floats, group_size: int, scale: ScaleRewards
) -> Advantages:
    """Compares every scored completion with its group.

    `rewards_B` holds the weighted sums in group order, NaN where a completion could not be scored; `scale`
    says what the differences are divided by: the group's standard deviation, that of all kept completions,
    or nothing. Equal rewards give exactly 0, where float arithmetic would leave a rest.
    """
    rewards_GK = np.asarray(rewards_B, dtype=np.float64).reshape(-1, group_size)
    scored_GK = ~np.isnan(rewards_GK)
    small_G = scored_GK.sum(axis=1) < 2
    kept_GK = scored_GK & ~small_G[:, None]

    advantages_GK = np.zeros_like(rewards_GK)
    group_std_G = np.full(len(rewards_GK), np.nan)
    tied_G = np.zeros(len(rewards_GK), dtype=np.bool_)
    for g in np.flatnonzero(~small_G):
        rewards = rewards_GK[g, scored_GK[g]]
        tied_G[g] = _all_equal(rewards)
        group_std_G[g] = 0.0 if tied_G[g] else rewards.std(ddof=1)
        if not tied_G[g]:
            advantages_GK[g, scored_GK[g]] = rewards - rewards.mean()

    if scale == "group":
        divisor_G1 = np.where(small_G | tied_G, 1.0, group_std_G + STABILITY)[:, None]
        advantages_GK /= divisor_G1
    elif scale == "batch":
        kept = rewards_GK[kept_GK]
        if len(kept) and not _all_equal(kept):
            advantages_GK /= kept.std(ddof=1) + STABILITY

    return Advantages(
        advantages_B=advantages_GK.reshape(-1),
        kept_B=kept_GK.reshape(-1),
        group_std_G=group_std_G,
        tied_G=tied_G,
        small_G=small_G,
    )


def _all_equal(values: Floats) -> bool:
    return bool((values == values[0]).all())
