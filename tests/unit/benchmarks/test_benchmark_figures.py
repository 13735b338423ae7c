"""The arithmetic behind a benchmark's lines."""

import json

import pytest
from harness import Figure, Spread, emit, paired_ratio


def test_median_and_quartiles_of_repeats():
    # By hand: sorted 1 2 4 8 16; the quartiles of five values are the second and the fourth.
    assert Spread.of([4, 16, 1, 8, 2]) == Spread(4, 2, 8, 1, 16, 5)


def test_one_repeat_has_no_spread():
    assert Spread.of([0.5]) == Spread(0.5, 0.5, 0.5, 0.5, 0.5, 1)


def test_no_repeat_has_no_median():
    with pytest.raises(ValueError, match="no measurement"):
        Spread.of([])


def test_ratios_are_taken_pair_by_pair():
    # The machine was three times slower in the second pair; the ratio of the medians would be 2 / 6.
    ratio = paired_ratio([1, 3, 2], [2, 6, 10])
    assert (ratio.median, ratio.low, ratio.high) == (0.5, 0.2, 0.5)
    with pytest.raises(ValueError, match="argument 2"):
        paired_ratio([1, 2], [1])


@pytest.mark.parametrize(
    ("value", "sense", "holds"),
    [(0.5, "at_most", True), (0.51, "at_most", False), (0.5, "at_least", True), (0.49, "at_least", False)],
)
def test_a_goal_that_is_just_reached_holds(value, sense, holds):
    assert Figure("bar", value, "x", goal=0.5, sense=sense).verdict() is holds


def test_a_bar_with_another_way_to_hold():
    assert Figure("bar", 0.4, "s", goal=0.3, holds=True).verdict() is True


def test_a_figure_without_a_goal_is_not_judged():
    assert Figure("bar", 0.4, "s").verdict() is None


def test_a_line_of_json(capsys):
    emit(
        Figure(
            "step_time/case",
            0.123456,
            "of TRL's step",
            goal=0.5,
            ours=1.0,
            rival=8.0,
            spread=Spread.of([0.1, 0.123456, 0.2]),
            more={"note": "n"},
        )
    )
    line, rest = capsys.readouterr().out.split("\n", 1)
    assert rest == ""
    assert json.loads(line) == {
        "bar": "step_time/case",
        "value": 0.1235,
        "goal": 0.5,
        "holds": True,
        "rival": 8.0,
        "ours": 1.0,
        "unit": "of TRL's step",
        "sense": "at_most",
        "quartiles": [0.1117, 0.1617],
        "range": [0.1, 0.2],
        "repeats": 3,
        "note": "n",
    }


def test_a_figure_that_is_no_number_is_never_printed(capsys):
    with pytest.raises(ValueError, match="JSON"):
        emit(Figure("bar", float("nan"), "s"))
    assert capsys.readouterr().out == ""
