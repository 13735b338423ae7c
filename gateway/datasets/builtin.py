"""Datasets that ship with Plaudit: made by a seeded generator, so there is nothing to download."""

from __future__ import annotations

import random
from typing import Any

ADDITIONS_NAME = "builtin:additions"
"""The id by which a job names the dataset of small additions."""

ADDITIONS_LARGEST = 19
"""The largest addend; the smallest is 0, so there are 400 different prompts."""


def additions_rows(count: int = 2000, seed: int = 3) -> list[dict[str, Any]]:
    """Make `count` rows of small additions, the same ones for the same seed.

    A row is `{"prompt": [{"role": "user", "content": "What is 7 + 12?"}], "answer": 19}`, the answer an int.
    Prompts repeat where `count` comes near the 400 different ones, as they would over several epochs.
    """
    if count < 0:
        raise ValueError(f"count is {count}; it must be at least 0")
    # A generator of its own: the caller's global random state neither matters nor moves.
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        left = rng.randint(0, ADDITIONS_LARGEST)
        right = rng.randint(0, ADDITIONS_LARGEST)
        question = {"role": "user", "content": f"What is {left} + {right}?"}
        rows.append({"prompt": [question], "answer": left + right})
    return rows
