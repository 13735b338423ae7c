"""When a reward lets a canary pass: cases worked out by hand."""

import pytest
from training_bench import make_prompts

from trainer_service.training.canaries import ECHO, Standard, canaries_for, pass_fraction


@pytest.mark.parametrize(
    ("low", "high", "good", "samples", "passes", "stays_out"),
    [
        # What it calls good gets 1 and 0.5: 0.75 on average.
        (0.0, 1.0, [1.0, 0.5], [0.0, 0.0], [0.75, 1.0], [0.0, 0.74]),
        # Nothing is called good: the completions' mean (0.9), or the middle of the range (0.5).
        (0.0, 1.0, [], [0.8, 1.0], [0.9, 1.0], [0.5, 0.89]),
        (0.0, 1.0, [], [0.0, 0.2], [0.5, 1.0], [0.1, 0.49]),
        # All get 1, canaries as well.
        (0.0, 1.0, [], [1.0, 1.0], [1.0], [0.99]),
        # Never earned: 0 is no more than the middle.
        (0.0, 1.0, [], [0.0, 0.0], [0.5], [0.0]),
        # No range is promised: more than the best completion.
        (None, None, [], [3.0, 7.0], [7.5], [7.0, 5.0]),
    ],
)
def test_a_canary_passes_where_it_is_worth_what_work_is(low, high, good, samples, passes, stays_out):
    standard = Standard(low, high, good, samples)
    assert [standard.lets_pass(value) for value in passes] == [True] * len(passes)
    assert [standard.lets_pass(value) for value in stays_out] == [False] * len(stays_out)


def test_a_penalty_and_a_reward_without_completions_can_not_be_told():
    assert Standard(-1.0, 0.0, [], [-0.5, 0.0]).lets_pass(0.0) is None
    assert Standard(0.0, 1.0, [], []).lets_pass(1.0) is None
    assert pass_fraction(Standard(0.0, 1.0, [], []), [1.0, 0.0]) is None
    # A penalty that says what is good can be held against it.
    assert Standard(-1.0, 0.0, [0.0], [-0.5]).lets_pass(0.0) is True


def test_the_share_is_of_those_that_were_scored():
    standard = Standard(0.0, 1.0, [1.0], [0.0])
    assert pass_fraction(standard, [1.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert pass_fraction(standard, []) is None


def test_the_canaries_of_a_prompt():
    (prompt,) = make_prompts(1)
    named = {canary.name: canary.text for canary in canaries_for(prompt)}
    assert named == {
        "": "",
        ":": ":",
        "Thought process:": "Thought process:",
        "Solution": "Solution",
        ECHO: prompt.text,
    }
