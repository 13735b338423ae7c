"""What was seen becomes findings: which, how bad, and what to change."""

from dataclasses import replace

import pytest

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored
from trainer_service.training._preflight_findings import find
from trainer_service.training._preflight_seen import RewardSeen, RunSeen, seconds_per_step
from trainer_service.training.canaries import ECHO

H = GrpoHyperparameters(rollouts_per_prompt=8, global_batch_size=64, max_response_length=32)


def scored(*values):
    return [Scored(float(value)) for value in values]


def seen_of(samples, *, good=(), bad=(), canaries=None, low=0.0, high=1.0, **fields):
    canaries = {"": scored(0), ":": scored(0)} if canaries is None else canaries
    return RewardSeen(
        name="right",
        low=low,
        high=high,
        samples=samples,
        good=good,
        bad=bad,
        canaries=canaries,
        examples_problem=fields.get("examples_problem", ""),
        seconds=fields.get("seconds", [0.01] * len(samples)),
    )


def run_of(*rewards, **changes):
    sums = [[float(b), float(b + 1)] for b in range(8)]
    run = RunSeen(
        rewards=rewards,
        completion_count=16,
        truncated_count=0,
        empty_count=0,
        non_finite_count=0,
        has_chat_template=True,
        rollout_seconds=1.0,
        sums_by_prompt=sums,
    )
    return replace(run, **changes)


def kinds(*rewards, **changes):
    return [(found.kind, found.severity) for found in find(run_of(*rewards, **changes), H)]


HEALTHY = seen_of(scored(*[0, 1] * 8), good=scored(1, 1), bad=scored(0, 0))


def test_a_healthy_job_has_no_findings():
    assert kinds(HEALTHY) == []


def test_a_reward_that_gives_good_and_bad_the_same_is_broken():
    reward = seen_of(scored(*[0] * 16), good=scored(0, 0), bad=scored(0))
    (found,) = find(run_of(reward), H)
    assert (found.kind, found.severity, found.reward) == ("constant_reward", "critical", "right")
    assert "gave 0 to all 16 completions" in found.seen
    assert "2 texts that it calls good" in found.seen
    assert "config" in found.advice
    assert found.evidence == {"value": 0.0, "completions": 16.0}


def test_one_that_the_base_model_never_earns_is_no_broken_one():
    reward = seen_of(scored(*[0] * 16), good=scored(1, 1), bad=scored(0))
    (found,) = find(run_of(reward), H)
    assert (found.kind, found.severity) == ("never_earned", "warning")
    assert "no learning signal" in found.seen
    assert "few-shot" in found.advice


def test_one_that_the_base_model_has_mastered_is_told_as_such():
    reward = seen_of(scored(*[1] * 16), good=scored(1), bad=scored(0))
    assert kinds(reward) == [("already_earned", "warning")]


@pytest.mark.parametrize(
    ("value", "low", "high", "others", "expected"),
    [
        # Nothing tells a broken reward from one that is not earned yet.
        (0.0, 0.0, 1.0, False, [("constant_reward", "critical")]),
        # Another reward gives the job something to learn.
        (0.0, 0.0, 1.0, True, [("no_spread", "warning")]),
        (0.0, None, None, True, [("no_spread", "warning")]),
        # Not its least value: no weak model explains it.
        (0.5, 0.0, 1.0, True, [("constant_reward", "critical")]),
        # A penalty that nobody incurs is as it should be.
        (0.0, -1.0, 0.0, False, []),
        (-1.0, -1.0, 0.0, False, [("constant_reward", "critical")]),
    ],
)
def test_a_constant_reward_without_good_texts(value, low, high, others, expected):
    same = {"": scored(value), ":": scored(value)}
    reward = replace(seen_of(scored(*[value] * 16), canaries=same, low=low, high=high), name="mine")
    assert kinds(reward, *([HEALTHY] if others else [])) == expected


def test_a_constant_reward_that_canaries_do_not_get_tells_something_apart():
    reward = seen_of(scored(*[0.7] * 16), canaries={"": scored(0), ":": scored(0)})
    assert kinds(reward) == [("no_spread", "warning")]


def test_failures_stop_the_job_beyond_what_it_tolerates():
    failed = Failed(FailureCode.INTERNAL, "returned nan; a value is finite")
    most = seen_of([*scored(0, 1, 0, 1), *[failed] * 12], good=scored(1), bad=scored(0))
    (found,) = find(run_of(most), H)
    assert (found.kind, found.severity) == ("failing_reward", "critical")
    assert "12 of 16 completions" in found.seen
    assert "returned nan" in found.seen
    some = seen_of([*scored(*[0, 1] * 7), failed, failed], good=scored(1), bad=scored(0))
    assert kinds(some) == [("failing_reward", "warning")]


def test_a_spent_budget_stops_it_at_the_first_failure():
    spent = Failed(FailureCode.EXHAUSTED, "the key was refused")
    reward = seen_of([*scored(*[0, 1] * 7, 0), spent], good=scored(1), bad=scored(0))
    (found,) = find(run_of(reward), H)
    assert (found.kind, found.severity) == ("failing_reward", "critical")
    assert "the key was refused" in found.seen
    assert "credential" in found.advice


def test_a_reward_that_applies_to_nothing_is_told():
    assert kinds(seen_of([NotApplicable("no column")] * 16), HEALTHY) == [("not_applicable", "warning")]


def test_a_job_whose_rewards_apply_to_nothing_is_stopped():
    (found,) = find(run_of(seen_of([NotApplicable("no column gold")] * 16)), H)
    assert (found.kind, found.severity, found.reward) == ("nothing_applies", "critical", "")
    assert "no reward (right) applies to 16 of 16 completions" in found.seen
    assert "no column gold" in found.seen
    assert "columns" in found.advice
    assert found.evidence == {"not_applicable": 16.0, "completions": 16.0}
    both = [seen_of([NotApplicable()] * 16), replace(seen_of([NotApplicable()] * 16), name="other")]
    assert kinds(*both) == [
        ("nothing_applies", "critical"),
        ("not_applicable", "warning"),
        ("not_applicable", "warning"),
    ]


def test_as_many_may_be_left_out_as_may_be_unscored():
    def of(left_out, **hyperparameters):
        samples = [*[NotApplicable()] * left_out, *scored(*[0, 1] * 8)[left_out:]]
        reward = seen_of(samples, good=scored(1, 1), bad=scored(0, 0))
        found = find(run_of(reward), H.model_copy(update=hyperparameters))
        return "nothing_applies" in [finding.kind for finding in found]

    assert [of(8), of(9)] == [False, True]
    assert not of(9, max_unscored_fraction=0.6)
    # However much may be unscored: from nothing, nothing is learnt.
    assert [of(15, max_unscored_fraction=1.0), of(16, max_unscored_fraction=1.0)] == [False, True]


def test_canaries_that_score_as_well_as_good_texts():
    likes_colons = seen_of(
        scored(*[0, 1] * 8), good=scored(1, 1), bad=scored(0), canaries={"": scored(0), ":": scored(1)}
    )
    (found,) = find(run_of(likes_colons), H)
    assert (found.kind, found.severity) == ("nothing_scores_well", "critical")
    assert "':'" in found.seen


@pytest.mark.parametrize(
    ("low", "high", "canary", "expected"),
    [
        (0.0, 1.0, 0.9, [("nothing_scores_well", "warning")]),
        (0.0, 1.0, 0.4, []),
        (None, None, 1.5, [("nothing_scores_well", "warning")]),
        (None, None, 1.0, []),
        (-1.0, 0.0, 0.0, []),
    ],
)
def test_canaries_without_good_texts_are_judged_by_the_range(low, high, canary, expected):
    samples = scored(*[0, 1] * 8) if high != 0.0 else scored(*[-1, 0] * 8)
    assert kinds(seen_of(samples, low=low, high=high, canaries={":": scored(canary)})) == expected


def test_bad_texts_that_score_as_well_as_good_ones():
    reward = seen_of(scored(*[0, 1] * 8), good=scored(0.5), bad=scored(0.5), canaries={})
    assert kinds(reward) == [("bad_scores_well", "critical")]


def test_all_truncated_stops_and_says_both_ways_out():
    (found,) = find(run_of(HEALTHY, truncated_count=16), H)
    assert (found.kind, found.severity) == ("truncated", "critical")
    assert "32 tokens" in found.seen
    assert "max_response_length" in found.advice
    assert "chat template" in found.advice
    without = find(run_of(HEALTHY, truncated_count=16, has_chat_template=False), H)[0]
    assert "has no chat template" in without.advice
    assert kinds(HEALTHY, truncated_count=8) == [("truncated", "warning")]
    assert kinds(HEALTHY, truncated_count=7) == []


def test_empty_completions_and_broken_weights():
    assert kinds(HEALTHY, empty_count=16) == [("empty_completions", "critical")]
    assert kinds(HEALTHY, non_finite_count=1) == [("non_finite_model", "critical")]


def test_scoring_time_of_a_step_is_estimated_from_the_pace():
    in_turn = seen_of(scored(*[0, 1] * 8), seconds=[0.5 * n for n in range(1, 17)])
    assert seconds_per_step(in_turn, 64) == pytest.approx(32.0)
    at_once = seen_of(scored(*[0, 1] * 8), seconds=[3.0] * 16)
    assert seconds_per_step(at_once, 64) == pytest.approx(3.0)


@pytest.mark.parametrize(("pace", "expected"), [(0.01, []), (0.5, "warning"), (2.0, "critical")])
def test_slow_rewards(pace, expected):
    reward = replace(HEALTHY, seconds=[pace * n for n in range(1, 17)])
    found = [f for f in find(run_of(reward), H) if f.kind == "slow_reward"]
    assert [f.severity for f in found] == ([expected] if expected else [])
    if found:
        assert f"about {64 * pace:.0f} s to score a step of 64" in found[0].seen


def test_few_mixed_groups_are_told_with_a_group_size_that_does():
    sums = [[0.0, 0.0]] * 7 + [[0.0, 1.0]]
    h = H.model_copy(update={"rollouts_per_prompt": 2})
    (found,) = find(run_of(HEALTHY, sums_by_prompt=sums), h)
    assert (found.kind, found.severity) == ("few_informative_groups", "warning")
    assert "rollouts_per_prompt to 8" in found.advice


def test_the_worst_comes_first():
    reward = seen_of(scored(*[0] * 16), good=scored(1), bad=scored(0))
    assert [severity for _, severity in kinds(reward, truncated_count=16)] == ["critical", "warning"]


def test_a_reward_that_pays_for_the_prompt_again_is_warned_of_and_stops_nothing():
    """A prompt may hold, as an example, the tags that a format check looks for."""
    canaries = {"": scored(0), ECHO: scored(1, 1)}
    reward = seen_of(scored(*[0, 1] * 8), good=scored(1, 1), bad=scored(0), canaries=canaries)
    (found,) = find(run_of(reward), H)
    assert (found.kind, found.severity) == ("nothing_scores_well", "warning")
    assert "gave 1 to a completion that repeats the prompt, and 1 to a good one" in found.seen


def test_what_is_held_out_is_warned_of_and_stops_nothing():
    same = {"": scored(0.7), ":": scored(0.7)}
    watching = replace(seen_of(scored(*[0.7] * 16), canaries=same), name="watching")
    assert kinds(HEALTHY, watching) == [("constant_reward", "critical")]
    held_out = replace(watching, is_held_out=True)
    assert kinds(HEALTHY, held_out) == [("constant_reward", "warning")]
    # Nor does it count that it applies: no reward that is taught applies to anything.
    unused = seen_of([NotApplicable()] * 16, canaries={})
    working = replace(HEALTHY, name="working")
    assert ("nothing_applies", "critical") not in kinds(unused, working)
    assert ("nothing_applies", "critical") in kinds(unused, replace(working, is_held_out=True))
