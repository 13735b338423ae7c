"""What the benchmark of a real model says of a gain, worked out by hand."""

from __future__ import annotations

import pytest
from real_model.outcome import paired_gain


def test_each_prompt_is_compared_with_itself() -> None:
    # The differences are 1, 0 and 0: mean 1/3, variance (4/9 + 1/9 + 1/9) / 2 = 1/3, error sqrt(1/3 / 3).
    gain, error = paired_gain({"a": 0.0, "b": 0.5, "c": 1.0}, {"c": 1.0, "b": 0.5, "a": 1.0})
    assert (gain, error) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_other_prompts_are_no_comparison() -> None:
    with pytest.raises(ValueError, match="same prompts"):
        paired_gain({"a": 0.0, "b": 0.5}, {"a": 0.0, "c": 0.5})
