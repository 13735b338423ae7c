"""How many groups will teach something, estimated from a few completions of a few prompts. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

_PRIOR_PAIRS = 2.0
"""Pairs that count as if prompts were all alike, so that a few ties by chance do not say "always tied"."""

_INDEPENDENT = 1e-6
"""Correlation within prompts below which prompts count as all alike."""


def informative_fraction(sums_by_prompt: Sequence[Sequence[float]], group_size: int) -> float | None:
    """The expected share, 0 to 1, of groups of `group_size` that hold different rewards.

    `sums_by_prompt` holds the rewards of each prompt's completions. How often two completions of one prompt
    tie says how much prompts differ; the rest is a Dirichlet-multinomial with the frequencies of all rewards
    (for rewards of two values a beta-binomial), fitted by moments. None where no prompt has two rewards.
    """
    values = Counter(value for sums in sums_by_prompt for value in sums)
    pairs = list(_pairs(sums_by_prompt))
    if not pairs:
        return None
    total = sum(values.values())
    shares = [count / total for count in values.values()]
    tied_if_alike = math.fsum(share**2 for share in shares)
    if tied_if_alike == 1.0:
        return 0.0
    tied = (sum(a == b for a, b in pairs) + _PRIOR_PAIRS * tied_if_alike) / (len(pairs) + _PRIOR_PAIRS)
    correlation = (tied - tied_if_alike) / (1.0 - tied_if_alike)
    if correlation < _INDEPENDENT:
        return 1.0 - math.fsum(share**group_size for share in shares)
    concentration = (1.0 - correlation) / correlation
    return 1.0 - math.fsum(_all_alike(share * concentration, concentration, group_size) for share in shares)


def group_size_for(
    sums_by_prompt: Sequence[Sequence[float]], group_size: int, wanted: float, largest: int
) -> int | None:
    """The smallest doubling of `group_size` that reaches the share `wanted`; None up to `largest`."""
    size = group_size * 2
    while size <= largest:
        if (informative_fraction(sums_by_prompt, size) or 0.0) >= wanted:
            return size
        size *= 2
    return None


def _pairs(sums_by_prompt: Sequence[Sequence[float]]) -> Iterator[tuple[float, float]]:
    for sums in sums_by_prompt:
        yield from combinations(sums, 2)


def _all_alike(weight: float, concentration: float, group_size: int) -> float:
    """The chance that all of a group get the one value that has `weight` of the `concentration`."""
    return math.prod((weight + drawn) / (concentration + drawn) for drawn in range(group_size))
