"""`plaudit.trial`: a reward function tried from Python, without a gateway."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from plaudit.errors import InvalidArgumentError
from plaudit.trial import try_reward, try_reward_async

ROWS = '{"prompt": "2 + 2 =", "answer": 4, "completions": ["4", "five"]}\n'


async def test_what_speaks_against_a_reward_is_found_within_an_event_loop(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "rewards.py").write_text(
        "def same(completions, **columns):\n    return [1.0 for _ in completions]\n"
    )
    random.seed(7)
    expected = random.Random(7).random()
    trial = await try_reward_async(tmp_path / "rewards.py", tmp_path / "rows.jsonl", allow_unsandboxed=True)
    assert trial.findings[0].kind == "constant"
    assert (trial.summary.completions, trial.summary.mean) == (2, 1.0)
    assert [(row.line, row.completions, row.count, row.std) for row in trial.rows] == [(1, "own", 2, 0.0)]
    # The caller's random numbers are the caller's.
    assert random.random() == expected


def test_every_file_that_cannot_be_used_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        try_reward(tmp_path / "rewards.py", tmp_path / "rows.jsonl")
    assert [wrong.field for wrong in refused.value.violations] == ["path", "rows"]
