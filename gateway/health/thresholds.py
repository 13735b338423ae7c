"""Every number that decides about an alert, with its reason. A false alarm is worse than a late one.

Lengths are in rollouts; with `num_iterations` above 1 a rollout serves several steps. Where a threshold to
raise has one to clear beside it, the second is easier to miss: an alert does not flicker around one value.
"""

from __future__ import annotations

from typing import Final

HEAD_ROLLOUTS: Final = 10
"""The job's first rollouts: what it began with. As many as make a mean of 64 completions each steady."""

BLOCK_ROLLOUTS: Final = 10
"""Newest rollouts that are taken together as "now": one odd batch decides nothing."""

TAIL_ROLLOUTS: Final = 64
"""Newest rollouts that are looked at: a collapse takes some tens of steps, and older ones say little."""

SETTLED_ROLLOUTS: Final = 30
"""Before these many, "now" and the beginning overlap or nearly do, and a policy that explores looks odd."""

CERTAIN_ERRORS: Final = 4.0
"""Standard errors of a difference that make it one. Looked at on every rollout, 2 would be met by chance."""

UNCERTAIN_ERRORS: Final = 2.0
"""Standard errors within which two means count as the same."""

CLEAR_SHARE: Final = 0.25
"""Part of the spread of rewards (their standard deviation) below which a change of their mean is small."""

LARGE_SHARE: Final = 0.5
"""Part of the spread of rewards from which a change of their mean is large."""

# policy_collapse. A policy that has learnt its task ends with low entropy and tied groups too: the demo's
# goes from 0.24 to 0.014 nats, with 95 % of the groups tied and 99 % of the reward. So entropy and ties never
# decide without the reward.
ENTROPY_GONE: Final = 0.1
"""Of the beginning's entropy. Healthy runs stay above it as long as there is something left to learn."""
ENTROPY_BACK: Final = 0.2
ENTROPY_BLOWN: Final = 2.0
"""Times the beginning's entropy: gibberish. Temperature does not change in a job, so that no setting does
that."""
ENTROPY_SETTLED: Final = 1.8
GROUPS_TIED: Final = 0.9
"""Share of groups in which every completion got the same reward: almost nothing is left to learn from."""
GROUPS_MIXED: Final = 0.75
TIES_ROSE: Final = 0.1
"""Ties that were there from the start are no collapse, but no_learning_signal."""
GAINS_LOST: Final = 0.9
"""Part of what the reward had gained that is gone again."""
SPREAD_VANISHED: Final = 0.1
"""Of the beginning's spread of rewards over all prompts: all completions get about the same."""
SPREAD_KEPT: Final = 0.9
"""Of the beginning's spread of rewards over all prompts. Where every group is tied and the prompts still
differ as much as at the start, the policy is always right on some and always wrong on others, and stays
so."""
SPREAD_GONE: Final = 0.6

# length_explosion
TRUNCATED: Final = 0.5
"""Share of completions that are cut: most of them can no longer get to an answer."""
TRUNCATED_ROSE: Final = 0.3
"""A base model that never ends is told by the preflight, and is no explosion."""
TRUNCATED_NO_MORE: Final = 0.3
ROOM_TAKEN: Final = 0.5
"""Part of the room between the earlier length and max_response_length that was taken."""

# no_learning_signal
SIGNAL_ROLLOUTS: Final = 20
SIGNAL_GROUPS: Final = 64
"""Groups from the start on. Of a task in which 15 % of the groups are mixed, 64 are all tied once in 30,000
jobs."""
SIGNAL_NONE: Final = 0.02
"""Share of groups with different rewards: at most one of 64."""
SIGNAL_SOME: Final = 0.05

# reward_failures. Healthy rewards fail on nothing; a judge now and then on a per cent or two.
FAILURE_ROLLOUTS: Final = 5
FAILING: Final = 0.1
"""Share of completions over five rollouts."""
FAILING_ROLLOUTS: Final = 3
"""Of the five that fail on more than FAILING_NO_MORE: one bad batch is retried, and no state."""
FAILING_MOST: Final = 0.5
"""Share of one rollout from which it is told at once: by default the job pauses then."""
FAILING_NO_MORE: Final = 0.05

# reward_protocol_errors
PROTOCOL_ROLLOUTS: Final = 5
PROTOCOL_BAD_ROLLOUTS: Final = 3
"""A server that is killed may leave a torn answer or two; one that is wrong errs again and again."""
PROTOCOL_QUIET_ROLLOUTS: Final = 10

# kl_blowup. A policy that learns what the base model would never write ends some nats away, slowly, and with
# reward. In the demo single steps reach 2.5 nats while the mean stays below 0.4: hence medians.
KL_ROLLOUTS: Final = 5
KL_BEFORE_ROLLOUTS: Final = 20
KL_LARGE: Final = 1.0
"""Nats per token."""
KL_ROSE: Final = 10.0
"""Times the earlier median."""
KL_RUIN: Final = 10.0
"""Nats per token: the policy writes what the reference model would write once in 22,000 tokens."""
KL_BACK: Final = 0.5

# reward_hacking
HACKING_ROLLOUTS: Final = 40
EVALUATIONS: Final = 5
"""Evaluations from which a fall can be told from their noise."""
RECENT_EVALUATIONS: Final = 2
LENGTH_DRIFT: Final = 4.0
"""Times the beginning's length, while reward climbs. Reasoning grows too, so that it is only an info."""
LENGTH_DRIFT_TOKENS: Final = 64
LENGTH_DRIFT_BACK: Final = 3.0

# reward_fooled
CANARIES_PASS: Final = 0.2
"""Share of an evaluation's canaries, which are ten: one may hit upon an answer by chance. One that is let
pass on both prompts is no chance."""
CANARIES_PASS_MOST: Final = 0.5
"""Share from which the reward tells hardly anything apart from work."""

# non_finite
NON_FINITE_STEPS: Final = 20
"""Steps (not rollouts) that are looked at, and that must be finite for the alert to be over."""
NON_FINITE_MANY: Final = 3
"""Of them. Three in a row pause the job."""
