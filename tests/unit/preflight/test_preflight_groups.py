"""How many groups will teach: against closed forms, and against draws of whole groups."""

import random

import pytest

from trainer_service.training._preflight_groups import group_size_for, informative_fraction


def test_two_completions_at_four_fifths_tie_in_about_seven_of_ten_groups():
    # 8 prompts, two completions each, 0.8 right: 3 of 8 pairs differ as often as chance has it (0.32).
    pairs = [[1, 1]] * 5 + [[1, 0]] * 2 + [[1, 0]] * 1 + [[1, 1]] * 2
    share = informative_fraction([[float(v) for v in pair] for pair in pairs], 2)
    assert share == pytest.approx(0.3, abs=0.05)


def test_prompts_that_are_all_alike_give_the_binomial():
    # Pairs differ more often than chance has it, so that prompts count as alike: 1 - 0.5^8 - 0.5^8.
    assert informative_fraction([[0.0, 1.0]] * 8, 8) == pytest.approx(1 - 2 * 0.5**8)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5])
def test_one_value_teaches_nothing(value):
    assert informative_fraction([[value, value]] * 8, 8) == 0.0


def test_nothing_is_known_of_single_rewards():
    assert informative_fraction([[1.0], [], [0.0]], 8) is None
    assert informative_fraction([], 8) is None


def test_prompts_that_always_tie_teach_less_than_their_rewards_suggest():
    always_tied = [[0.0, 0.0]] * 4 + [[1.0, 1.0]] * 4
    mixed = [[0.0, 1.0]] * 8
    assert informative_fraction(always_tied, 8) < 0.5 < informative_fraction(mixed, 8)


def test_the_share_is_that_of_drawn_groups():
    """Prompts with a Beta(1, 1) chance each: simulated pairs in, and groups of 8 simulated beside them."""
    source = random.Random(5)
    chances = [source.random() for _ in range(4000)]
    pairs = [[float(source.random() < p) for _ in range(2)] for p in chances]
    groups = [[source.random() < p for _ in range(8)] for p in chances]
    drawn = sum(len(set(group)) > 1 for group in groups) / len(groups)
    assert informative_fraction(pairs, 8) == pytest.approx(drawn, abs=0.03)  # both near 1 - 2/9


def test_a_larger_group_that_would_do_is_found():
    pairs = [[0.0, 0.0]] * 7 + [[0.0, 1.0]]
    assert informative_fraction(pairs, 2) < 0.4
    assert group_size_for(pairs, 2, 0.4, 64) == 8
    assert informative_fraction(pairs, 4) < 0.4 <= informative_fraction(pairs, 8)
    assert group_size_for([[0.0, 0.0]] * 8, 2, 0.4, 64) is None
