"""No signal, failures, broken contracts, and reward that climbs for the wrong reason."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from judged_series import SETTING, SFT, STEADY, Told, from_step, line, steps, told, told_with_messages

from gateway.health import RewardSetting

TIED = {"zero_std_group_fraction": 1.0, "reward_std_batch": 0.0, "reward_mean": 0.0}


@pytest.mark.parametrize(("groups", "step"), [(8, 20), (3, 22), (2, 32), (1, 64)])
def test_no_signal_is_told_after_64_groups_and_20_rollouts(groups: int, step: int) -> None:
    setting = replace(SETTING, groups_per_rollout=groups)
    assert told(steps(100, **TIED), setting) == [Told(step, "critical", "no_learning_signal")]


def test_no_signal_says_whether_prompts_differ() -> None:
    ((alert, message),) = told_with_messages(steps(40, zero_std_group_fraction=0.99))
    assert alert == Told(20, "warning", "no_learning_signal")
    assert "in steps 1 to 20, 1.0% of the groups hold different rewards; the mean is 0.5: prompts" in message
    ((_, message),) = told_with_messages(steps(40, **TIED))
    assert "0.0% of the groups hold different rewards; all get 0;" in message


def test_a_signal_that_comes_late_ends_it() -> None:
    rows = steps(60, **{**TIED, "zero_std_group_fraction": from_step(31, 1.0, 0.4)})
    assert told(rows) == [
        Told(20, "critical", "no_learning_signal"),
        # 0.6 / 31 = 0.019 of all groups with step 31, of 0.02; 0.12 of those of the ten newest with step 32.
        Told(32, "over", "no_learning_signal"),
    ]


def test_ties_that_leave_a_signal_or_come_later_are_none() -> None:
    # Two completions a group at 0.8 of them right: 68 % of the groups are tied.
    assert told(steps(100, zero_std_group_fraction=0.7)) == []
    assert told(steps(300, zero_std_group_fraction=from_step(6, 0.1, 1.0))) == []


def test_nothing_to_which_a_reward_applies_is_no_signal_and_nothing_scored_is_a_failure() -> None:
    nothing = {"zero_std_group_fraction": math.nan, "small_group_fraction": 1.0, "reward_mean": math.nan}
    assert told(steps(30, **nothing)) == [Told(20, "critical", "no_learning_signal")]
    failed = {**nothing, "unscored_fraction": 1.0, "reward__exact_answer__failed_fraction": 1.0}
    assert told(steps(30, **failed)) == [Told(1, "critical", "reward_failures", "exact_answer")]


def test_failures_last_become_worse_and_end() -> None:
    def share(step: int) -> float:
        return 0.0 if step < 11 or step >= 31 else 0.15 if step < 21 else 0.6

    rows = steps(60, reward__exact_answer__failed_fraction=share)
    assert told(rows) == [
        Told(14, "warning", "reward_failures", "exact_answer"),  # 4 * 0.15 / 5 = 0.12, of 0.1
        Told(21, "critical", "reward_failures", "exact_answer"),
        Told(35, "over", "reward_failures", "exact_answer"),  # five without
    ]
    messages = [message for _, message in told_with_messages(rows)]
    assert "reward exact_answer failed on 12% of the completions of steps 10 to 14;" in messages[0]
    assert "reward exact_answer failed on 60% of the completions of step 21;" in messages[1]


def test_one_bad_batch_and_a_share_around_the_threshold() -> None:
    once = steps(60, reward__exact_answer__failed_fraction=lambda s: 0.3 if s == 11 else 0.0)
    assert told(once) == []
    around = steps(80, reward__exact_answer__failed_fraction=lambda s: 0.13 if s % 2 else 0.08)
    assert told(around) == [Told(5, "warning", "reward_failures", "exact_answer")]


def test_rewards_that_fail_on_a_few_each_are_told_as_one() -> None:
    names = ("a", "b", "c")
    setting = replace(SETTING, rewards=tuple(RewardSetting(name, name, 1.0) for name in names))
    few = {f"reward__{name}__failed_fraction": from_step(11, 0.0, 0.05) for name in names}
    rows = steps(40, unscored_fraction=from_step(11, 0.0, 0.14), **few)
    assert told(rows, setting) == [Told(14, "warning", "reward_failures")]  # 4 * 0.14 / 5 = 0.112


def test_a_server_that_breaks_the_contract_again_and_again() -> None:
    rows = steps(60, reward__exact_answer__protocol_errors=lambda s: 2.0 if 11 <= s <= 20 else 0.0)
    assert told(rows) == [
        Told(13, "warning", "reward_protocol_errors", "exact_answer"),
        Told(30, "over", "reward_protocol_errors", "exact_answer"),
    ]
    torn = steps(60, reward__exact_answer__protocol_errors=lambda s: 5.0 if s in (11, 12) else 0.0)
    assert told(torn) == []


def test_held_out_reward_falls_while_the_trained_one_climbs() -> None:
    rows = steps(120, reward_mean=line((1, 0.3), (70, 0.9)))
    held_out = {10: 0.3, 20: 0.4, 30: 0.5, 40: 0.52, 50: 0.45, 60: 0.4, 70: 0.3, 80: 0.3, 90: 0.45, 100: 0.5}
    # Best two 0.51, newest two 0.425 after step 60 and 0.35 after step 70: 0.16 is above a quarter of 0.5. It
    # is over halfway back: (0.45 + 0.5) / 2 = 0.475, of (0.51 + 0.35) / 2 = 0.43.
    subject = "held-out prompts"
    assert told(rows, evaluations=held_out) == [
        Told(70, "critical", "reward_hacking", subject),
        Told(100, "over", "reward_hacking", subject),
    ]
    (_, message), *_ = told_with_messages(rows, evaluations=held_out)
    assert (
        "between the evaluations after steps 30 and 40 and those after steps 60 and 70 the reward on "
        "held-out prompts fell from 0.51 to 0.35, while reward_mean rose by 0.26" in message
    )


def test_evaluations_that_only_waver_or_fall_with_the_training() -> None:
    wavering = dict(zip(range(10, 130, 10), (0.5, 0.44, 0.55, 0.47, 0.52, 0.43) * 2, strict=True))
    rising = steps(120, reward_mean=line((1, 0.3), (120, 0.9)))
    assert told(rising, evaluations=wavering) == []
    falling = dict(zip(range(10, 130, 10), (0.6, 0.6, 0.55, 0.5, 0.45, 0.4) + (0.35,) * 6, strict=True))
    assert told(steps(120, reward_mean=line((1, 0.6), (120, 0.35))), evaluations=falling) == []


def two_rewards(other: str, course: tuple[float, float]) -> list[Told]:
    setting = replace(
        SETTING,
        rewards=(RewardSetting("style", "style", 1.0), RewardSetting(other, other, 1.0)),
    )
    rows = steps(
        120,
        reward_mean=line((41, 0.7), (80, 1.1)),
        reward__style__mean=line((41, 0.2), (80, 1.0)),
        reward__style__std=0.5,
        **{f"reward__{other}__mean": line((41, course[0]), (80, course[1])), f"reward__{other}__std": 0.5},
    )
    return told(rows, setting)


def test_a_reward_that_falls_while_the_sum_climbs() -> None:
    # 0.4 * (70 - 45.5) / 39 = 0.2513, of half of 0.5.
    assert two_rewards("answer", (0.5, 0.1)) == [Told(70, "warning", "reward_hacking", "answer")]
    assert two_rewards("answer", (0.5, 0.4)) == []


def test_a_penalty_is_traded_on_purpose_but_for_repetition() -> None:
    assert two_rewards("length_penalty", (-0.1, -0.5)) == []
    assert two_rewards("repetition_penalty", (-0.1, -0.5)) == [
        Told(70, "warning", "reward_hacking", "repetition_penalty")
    ]


def watched(course: tuple[float, float], *, mean_before: float = 0.6) -> list[tuple[Told, str]]:
    """A reward that is taught climbs from 0.6 to 1.1 over the steps 41 to 80; a second judge, of weight 0,
    that scores the same completions goes from `course[0]` to `course[1]`.
    """
    setting = replace(
        SETTING, rewards=(RewardSetting("judge", "judge", 1.0), RewardSetting("second", "judge", 0.0))
    )
    rows = steps(
        120,
        reward_mean=line((41, mean_before), (80, 1.1)),
        reward__judge__mean=line((41, mean_before), (80, 1.1)),
        reward__judge__std=0.5,
        reward__second__mean=line((41, course[0]), (80, course[1])),
        reward__second__std=0.5,
    )
    return told_with_messages(rows, setting)


def test_a_held_out_reward_that_falls_while_the_taught_one_climbs() -> None:
    # 0.4 * (70 - 45.5) / 39 = 0.2513, of half of 0.5; the trained reward rose by 0.5 * 24.5 / 39 = 0.314.
    ((alert, message),) = watched((0.6, 0.2))
    assert alert == Told(70, "critical", "reward_hacking", "second")
    assert message.startswith(
        "between steps 1 to 10 and steps 61 to 70 the held-out reward second fell from 0.6 to 0.349, while "
        "reward_mean rose from 0.6 to 0.914;"
    )
    assert message.endswith("or give second a weight")
    # Both climb, or it wavers by less.
    assert watched((0.6, 0.9)) == []
    assert watched((0.6, 0.5)) == []
    # It falls with the taught one: nothing is gamed.
    assert watched((0.6, 0.2), mean_before=1.1) == []
    # A penalty that is held out is not traded for anything.
    assert [alert for alert, _ in watched((-0.1, -0.5))] == [Told(70, "critical", "reward_hacking", "second")]


def test_a_held_out_reward_that_fails_is_no_more_than_a_warning() -> None:
    setting = replace(SETTING, rewards=(SETTING.rewards[0], RewardSetting("second", "judge", 0.0)))
    failing = {"reward__second__failed_fraction": from_step(11, 0.0, 1.0)}
    ((alert, message),) = told_with_messages(steps(40, **failing), setting)
    assert alert == Told(11, "warning", "reward_failures", "second")
    assert "it is held out, so that they are learnt from all the same" in message


def test_a_reward_that_gives_no_answers_what_it_gives_good_ones() -> None:
    rewards = (
        RewardSetting("judge", "judge", 1.0),
        RewardSetting("second", "judge", 0.0),
        RewardSetting("padding", "judge", -1.0),
    )
    shares = {
        0: {"judge": 0.0, "second": 0.0, "padding": 1.0},  # a high value of padding is a low one of the sum
        20: {"judge": 0.1, "second": 0.1},  # one of ten may hit upon an answer
        40: {"judge": 0.2, "second": 0.2},
        60: {"judge": 0.5, "second": 1.0},
        80: {"judge": math.nan, "second": 0.2},  # none was scored: it says nothing
        100: {"judge": 0.1, "second": 0.2},
    }
    found = told(steps(100), replace(SETTING, rewards=rewards), canaries=shares)
    assert found == [
        Told(40, "warning", "reward_fooled", "judge"),
        Told(40, "warning", "reward_fooled", "second"),
        Told(60, "critical", "reward_fooled", "judge"),
        Told(100, "over", "reward_fooled", "judge"),
    ]
    ((alert, message),) = told_with_messages(steps(5), canaries={0: {"exact_answer": 0.6}})
    assert alert == Told(0, "critical", "reward_fooled", "exact_answer")
    assert message.startswith("in the evaluation before the first step reward exact_answer gave 60% of the ")


NOT_FINITE = {"step_skipped": 1.0, "step_not_finite": 1.0, "loss": math.nan, "grad_norm": math.nan}


def skipped_at(*bad: int, count: int = 60) -> list[dict[str, float]]:
    return [{**STEADY, **(NOT_FINITE if s in bad else {})} for s in range(1, count + 1)]


def test_steps_that_were_not_finite() -> None:
    assert told(skipped_at(15)) == [Told(15, "warning", "non_finite"), Told(35, "over", "non_finite")]
    assert told(skipped_at(15, 16, 17, 18)) == [
        Told(15, "warning", "non_finite"),
        Told(17, "critical", "non_finite"),
        Told(38, "over", "non_finite"),
    ]
    rows = [{name: row[name] for name in ("step_not_finite", "loss", "grad_norm")} for row in skipped_at(7)]
    assert told(rows, SFT) == [Told(7, "warning", "non_finite"), Told(27, "over", "non_finite")]


def test_a_step_that_was_skipped_for_want_of_scores_is_finite() -> None:
    assert told(steps(30, step_skipped=1.0, loss=math.nan, grad_norm=0.0)) == []
    assert told(steps(30, step_skipped=1.0, loss=2.4e-6, grad_norm=1.1e-4)) == []


def test_the_second_step_on_a_rollout_is_judged_for_numbers_alone() -> None:
    setting = replace(SETTING, num_iterations=2)
    assert told(skipped_at(8), setting) == [Told(8, "warning", "non_finite"), Told(28, "over", "non_finite")]
