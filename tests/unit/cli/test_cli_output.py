"""What the command line prints: curves that show the points, JSON for programs, no control characters."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.cli._curve import draw_curve
from plaudit.cli._output import plain, print_fields, print_table, printable
from plaudit.types.statuses import JobStatus


def test_a_rising_line_rises_from_the_lower_left_to_the_upper_right() -> None:
    rows = draw_curve([(step, step / 7) for step in range(8)], width=8, height=4).split("\n")
    assert [row[:8].strip() for row in rows] == ["1.000", "", "", "0.000"]
    columns = ["".join(row[10 + x] for row in rows) for x in range(8)]
    filled = [sum(c != " " for c in column) for column in columns]
    assert filled == sorted(filled)
    assert (filled[0], filled[-1]) == (1, 4)
    assert columns[-1] == "████"


def test_neighbours_share_a_column_as_their_mean() -> None:
    rows = draw_curve([(i, float(i % 2)) for i in range(100)], width=50, height=3).split("\n")
    # Pairs of 0 and 1 in 50 columns: every column is their mean.
    assert [rows[0][:8], rows[-1][:8]] == ["   0.500", "   0.500"]
    assert len(set(rows[1][10:])) == 1


@given(values=st.lists(st.floats(), max_size=200), width=st.integers(2, 80), height=st.integers(2, 12))
def test_any_values_give_a_picture_of_the_size_asked_for(
    values: list[float], width: int, height: int
) -> None:
    rows = draw_curve(list(enumerate(values)), width=width, height=height).split("\n")
    assert len(rows) == height
    assert all(len(row) <= 2_000 for row in rows)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("plain ünïcode ✓", "plain ünïcode ✓"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb", "a\\x0db"),
        ("\u202eright to left", "\\u202eright to left"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_text_of_other_people_cannot_steer_a_terminal(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown


def test_plain_data_is_json_without_tricks() -> None:
    data = {
        "status": JobStatus.RUNNING,
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "values": (1.5, math.nan, math.inf, -math.inf),
        "none": None,
        "text": "NaN is text here",
    }
    assert json.loads(json.dumps(plain(data), allow_nan=False)) == {
        "status": "running",
        "at": "2026-01-02T03:04:05Z",
        "values": [1.5, "NaN", "Infinity", "-Infinity"],
        "none": None,
        "text": "NaN is text here",
    }


def test_where_stdout_is_no_terminal_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [f"job_{'0' * 26}{n}" for n in range(2)]
    print_table(("job", "text"), [(job_id, "word " * 40) for job_id in ids])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["job", *ids]
    assert lines[1].split()[1:] == ["word"] * 40


def test_line_ends_of_other_people_make_neither_rows_nor_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("server", "why not"), [("mine", "it hung up\ntheirs serving")])
    print_fields({"answers": "no", "version": "1\nanswers  yes"})
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "server  why not",
        "mine    it hung up ⏎ theirs serving",
        "answers  no",
        "version  1",
        "         answers  yes",
    ]


def test_on_a_narrow_terminal_the_first_column_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    print_table(("job", "text"), [("job_" + "0" * 26, "word " * 40)])
    assert "job_" + "0" * 26 + " " in capsys.readouterr().out
