"""What `plaudit reward test` sends at once stays below what a message holds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaudit.errors import InvalidArgumentError
from plaudit.rpc import MAX_MESSAGE_BYTES
from plaudit.trial import _asking
from plaudit.trial._asking import Ask
from plaudit.trial._rows import MOST_BYTES, TrialRow, read_rows
from plaudit.types.scoring import ChatMessage, Prompt

BATCH_BYTES = 4_000
SIZES = st.sampled_from([0, 5, 70, 1_000, 3_000, 7_000])


@settings(deadline=None)
@given(st.lists(st.tuples(SIZES, st.integers(0, 2)), max_size=12), st.integers(1, 5))
def test_batches_are_bounded_in_number_and_bytes(texts: list[tuple[int, int]], size: int) -> None:
    rows = [TrialRow(n, Prompt(f"row-{n}", (ChatMessage("user", "p" * 50),)), (), False) for n in range(3)]
    asks = [Ask(rows[row], "y" * length) for length, row in texts]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_asking, "_BATCH_BYTES", BATCH_BYTES)
        batches = list(_asking._batches(asks, size))
    assert [ask for batch in batches for ask in batch] == asks
    for batch in batches:
        assert 1 <= len(batch) <= size
        assert len(batch) == 1 or sum(len(ask.text) for ask in batch) <= BATCH_BYTES
    # None is cut off before it is full.
    for batch, following in itertools.pairwise(batches):
        taken = sum(len(ask.text) + 100 for ask in (*batch, following[0]))
        assert len(batch) == size or taken > BATCH_BYTES


def test_a_completion_that_no_message_holds_is_told_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": "p", "completion": "y" * size} for size in (10, MOST_BYTES - 1000, MOST_BYTES + 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_rows(path, None, 2)) == 2
    with pytest.raises(InvalidArgumentError) as caught:
        read_rows(path, None, 3)
    (violation,) = caught.value.violations
    assert violation.field == f"{path}:3"
    assert violation.message.startswith("takes more than 8 MiB with its longest completion")
    assert max(MOST_BYTES, _asking._BATCH_BYTES) < MAX_MESSAGE_BYTES / 1.5
