"""What a run has learnt on prompts that it never saw, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """Held-out reward of one seed, before the first step and after the last; greedy, one a prompt."""

    seed: int
    base: float
    final: float
    gain: float
    """Mean over the prompts of final minus base."""
    gain_error: float
    """Standard error of `gain`: prompts are the sample, each compared with itself."""
    base_exact: float
    """Share of right answers among the base model's."""
    final_exact: float
    mixed_groups: float
    """Share of the first five steps' groups whose completions were not all rewarded alike."""
    step_seconds: float
    """Median."""
    curve: Sequence[float]
    """reward_mean of each step, sampled."""
    held_out: Mapping[int, float]
    """eval/reward_mean by step."""

    @property
    def sure(self) -> bool:
        """Whether the gain is above two standard errors."""
        return self.gain > 2 * self.gain_error


def paired_gain(base: Mapping[str, float], final: Mapping[str, float]) -> tuple[float, float]:
    """Mean and standard error of the differences, prompt by prompt. Both hold the same prompts."""
    if base.keys() != final.keys():
        raise ValueError("the two evaluations did not score the same prompts")
    differences = [final[prompt] - base[prompt] for prompt in sorted(base)]
    return statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
