"""Collapse, explosion and blow-up, on series whose alerts were worked out by hand.

"Now" is the mean of the ten newest rollouts: the comments count how many of them the change must have
reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from judged_series import SETTING, Told, from_step, line, steps, told, told_with_messages


def collapsed(when: Callable[[int], bool]) -> dict[str, Callable[[int], float]]:
    """A collapse in the steps for which `when` is true."""
    return {
        "reward_mean": lambda s: 0.0 if when(s) else 0.5,
        "reward_std_batch": lambda s: 0.0 if when(s) else 0.5,
        "policy_entropy": lambda s: 0.01 if when(s) else 1.0,
        "zero_std_group_fraction": lambda s: 1.0 if when(s) else 0.1,
    }


def test_a_collapse_is_told_once_ends_and_is_told_again() -> None:
    rows = steps(220, **collapsed(lambda s: 41 <= s <= 120 or s >= 161))
    assert told(rows) == [
        # Ties: (1 * 0.1 + 9 * 1) / 10 = 0.91, of 0.9, with nine of the ten.
        Told(49, "critical", "policy_collapse"),
        # Ties: (7 * 1 + 3 * 0.1) / 10 = 0.73, of 0.75, with three; the entropy, 0.307, was back with two.
        Told(123, "over", "policy_collapse"),
        Told(169, "critical", "policy_collapse"),
    ]


def test_what_is_told_has_the_numbers_and_the_steps() -> None:
    (_, message), *_ = told_with_messages(steps(60, **collapsed(lambda s: s >= 41)))
    assert message.startswith(
        "in steps 40 to 49 policy_entropy is 0.109 nats (1 in steps 1 to 10), in 91% of the groups all "
        "rewards are equal (10%), and reward_mean fell from 0.5 in steps "
    )
    assert "to 0.05; read the newest completions, go back to an earlier checkpoint" in message


def test_steps_on_one_rollout_count_as_one() -> None:
    rows = [row for row in steps(80, **collapsed(lambda s: s >= 41)) for _ in range(2)]
    # The 49th rollout begins with step 97.
    assert told(rows, replace(SETTING, num_iterations=2)) == [Told(97, "critical", "policy_collapse")]


def test_gibberish_is_a_collapse_whose_entropy_rises() -> None:
    rows = steps(
        120,
        reward_mean=lambda s: 0.0 if s >= 81 else line((1, 0.2), (60, 0.6))(s),
        policy_entropy=from_step(81, 1.0, 3.0),
    )
    # With seven the mean is 0.18 and its error 0.0917: 0.6 - 0.18 = 0.42 is more than four of them. With six
    # it is not (0.36, 0.098). Nine tenths of what was gained since the start (0.23) are gone before that.
    assert told(rows) == [Told(87, "critical", "policy_collapse")]


def test_one_text_for_everything_is_a_collapse_though_the_mean_stays() -> None:
    rows = steps(
        100,
        policy_entropy=from_step(41, 1.0, 0.01),
        zero_std_group_fraction=from_step(41, 0.1, 1.0),
        reward_std_batch=from_step(41, 0.5, 0.01),
    )
    # Entropy: 0.109 with nine, 0.01 with ten; spread 0.01, of 0.05.
    assert told(rows) == [Told(50, "critical", "policy_collapse")]


def test_always_right_on_some_and_always_wrong_on_others_is_a_warning() -> None:
    rows = steps(
        120,
        reward_mean=line((1, 0.2), (40, 0.5)),
        policy_entropy=from_step(41, 1.0, 0.01),
        zero_std_group_fraction=from_step(41, 0.1, 1.0),
    )
    # The 20 rollouts before the newest ten are tied too: (2 * 0.1 + 18 * 1) / 20 = 0.91 with 28 in all.
    assert told(rows) == [Told(68, "warning", "policy_collapse")]


def test_a_collapse_from_the_first_reward_on_needs_no_gain_before() -> None:
    """A learning rate far too high: the base model's own reward is lost at once."""
    rows = steps(60, **collapsed(lambda s: s >= 12))
    assert told(rows) == [Told(30, "critical", "policy_collapse")]


def test_lengths_that_run_away_without_reward() -> None:
    rows = steps(
        120,
        response_length_mean=line((41, 200.0), (80, 900.0)),
        truncated_fraction=line((41, 0.0), (80, 0.8)),
    )
    # The mean of the ten newest is the value 4.5 steps before: 0.8 * (70 - 45.5) / 39 = 0.503, of 0.5; the
    # length took half of the room of 800 by step 68.
    assert told(rows) == [Told(70, "warning", "length_explosion")]


def test_answers_that_are_cut_lose_their_reward() -> None:
    rows = steps(
        120,
        reward_mean=line((41, 0.53), (81, 0.36)),
        response_length_mean=line((41, 200.0), (81, 1000.0)),
        truncated_fraction=line((41, 0.0), (81, 1.0)),
    )
    # Cut: (66 - 45.5) / 40 = 0.51. The reward: 0.17 * (75 - 45.5) / 40 = 0.1254 of a quarter of 0.5.
    assert told(rows) == [
        Told(66, "warning", "length_explosion"),
        Told(75, "critical", "length_explosion"),
    ]


def test_an_explosion_is_over_when_completions_end_again() -> None:
    rows = steps(
        160,
        response_length_mean=lambda s: 900.0 if 41 <= s <= 100 else 200.0,
        truncated_fraction=lambda s: 0.8 if 41 <= s <= 100 else 0.0,
    )
    # 0.8 * 7 / 10 = 0.56 at the start; at the end 0.8 * 3 / 10 = 0.24, of 0.3.
    assert told(rows) == [Told(47, "warning", "length_explosion"), Told(107, "over", "length_explosion")]


def test_a_base_model_that_never_ends_is_no_explosion() -> None:
    assert told(steps(100, response_length_mean=990.0, truncated_fraction=0.97)) == []


def test_a_distance_that_jumps() -> None:
    rows = steps(120, kl_div=lambda s: 2.0 if 61 <= s <= 80 else 0.05)
    # Three of five decide a median.
    assert told(rows) == [Told(63, "warning", "kl_blowup"), Told(83, "over", "kl_blowup")]
    assert told(rows, replace(SETTING, has_reference=False)) == []
    assert told(steps(120, kl_div=from_step(61, 0.05, 20.0))) == [Told(63, "critical", "kl_blowup")]
    assert told(steps(120, kl_div=from_step(61, 0.05, float("inf")))) == [Told(63, "critical", "kl_blowup")]


@pytest.mark.parametrize(
    "courses",
    [
        {"kl_div": lambda s: 5.0 if s % 5 == 0 else 0.05},  # single steps
        {"kl_div": line((20, 0.01), (110, 3.0)), "reward_mean": line((20, 0.1), (110, 0.9))},  # paid for
        {"kl_div": 3.0},  # far away from the start, and no farther
    ],
)
def test_a_distance_that_does_no_harm(courses: dict[str, float | Callable[[int], float]]) -> None:
    assert told(steps(120, **courses)) == []
