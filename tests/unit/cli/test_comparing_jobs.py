"""Jobs beside each other: courses of metrics, and curves on common axes."""

from __future__ import annotations

import math

import pytest

from plaudit.cli._curve import draw_overlaid
from plaudit.cli.job_compare import Course, _differences, _flat, course_of


def test_a_course_tells_first_last_and_the_extremes_without_nan() -> None:
    points = [(1, 0.5), (2, math.nan), (3, 0.9), (4, 0.7)]
    assert course_of("reward_mean", points) == Course(0.5, 0.7, 0.5, 0.9, best=0.9)
    # Of a loss nobody can say which value is best.
    assert course_of("loss", points) == Course(0.5, 0.7, 0.5, 0.9, best=None)
    assert course_of("reward/format/mean", points).best == 0.9
    assert course_of("reward_mean", []) is None


def test_specs_differ_in_paths_as_set_takes_them() -> None:
    one = {"seed": 1, "rewards": [{"weight": 1.0, "config": {}}], "same": [1, 2]}
    two = {"seed": 2, "rewards": [{"weight": 0.5, "config": {"tag": "x"}}, {"weight": 1.0}], "same": [1, 2]}
    assert dict(_differences([dict(_flat(one)), dict(_flat(two))])) == {
        "seed": [1, 2],
        "rewards[0].weight": [1.0, 0.5],
        "rewards[0].config": [{}, None],
        "rewards[0].config.tag": [None, "x"],
        "rewards[1].weight": [None, 1.0],
    }


def test_curves_share_their_axes_and_meet_in_a_star() -> None:
    rising = [(step, float(step)) for step in range(5)]
    falling = [(step, float(4 - step)) for step in range(5)]
    rows = draw_overlaid([rising, falling], "ab", width=5, height=5).split("\n")
    assert [row[10:] for row in rows] == ["b   a", " b a ", "  *  ", " a b ", "a   b", "0   4"]
    assert (rows[0][:8].strip(), rows[4][:8].strip()) == ("4", "0")


@pytest.mark.parametrize(
    "curves", [[[], []], [[(1, math.nan)], []], [[(1, 1e308)], [(1, -1e308)]], [[(7, 2.0)], []]]
)
def test_any_curves_give_a_picture_of_the_size_asked_for(curves: list[list[tuple[int, float]]]) -> None:
    rows = draw_overlaid(curves, "ab", width=20, height=4).split("\n")
    assert len(rows) == 5
    assert all(len(row) <= 40 for row in rows)
