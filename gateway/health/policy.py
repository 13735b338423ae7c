"""What becomes of the policy: collapse, lengths that run away, and a distance that blows up."""

from __future__ import annotations

from typing import Final

from gateway.health import thresholds as at
from gateway.health.blocks import (
    best_before,
    earlier_blocks,
    fell,
    gained,
    is_no_better,
    newest,
    reward,
    reward_spread,
)
from gateway.health.findings import Detector, Episode, Finding
from gateway.health.series import Rows, SeriesView, level, mean, median, span
from gateway.health.setting import JobSetting
from plaudit.types import metrics as names
from plaudit.types.preflight import Severity

_COLLAPSE_ADVICE: Final = (
    "read the newest completions, go back to an earlier checkpoint, and try a lower learning_rate, a higher "
    "kl_coef or temperature, or a reward that tells more completions apart"
)


def _find_collapse(view: SeriesView, setting: JobSetting) -> list[Finding]:
    if view.rollout_count < at.SETTLED_ROLLOUTS:
        return []
    now = newest(view)
    entropy, entropy_at_first = (mean(rows, names.POLICY_ENTROPY) for rows in (now, view.head))
    ties, ties_at_first = (mean(rows, names.ZERO_STD_GROUP_FRACTION) for rows in (now, view.head))
    reward_now, reward_at_first = reward(now), reward(view.head)
    best_rows, best = best_before(view)
    spread = reward_spread(view)

    is_tied = ties >= at.GROUPS_TIED and ties >= ties_at_first + at.TIES_ROSE
    is_certain = entropy <= at.ENTROPY_GONE * entropy_at_first and is_tied
    is_odd = (
        is_tied
        or entropy <= at.ENTROPY_GONE * entropy_at_first
        or entropy >= at.ENTROPY_BLOWN * entropy_at_first
    )
    lost = best.mean - reward_now.mean
    has_lost = fell(reward_now, best, spread, at.LARGE_SHARE) and lost >= at.GAINS_LOST * (
        best.mean - reward_at_first.mean
    )
    if is_odd and has_lost:
        severity: Severity = "critical"
        told = f"reward_mean fell from {best.mean:.3g} in {span(best_rows)} to {reward_now.mean:.3g}"
    elif is_certain and _has_nothing_gained(view, now):
        severity = "critical"
        told = f"reward_mean is {reward_now.mean:.3g}, no more than the {reward_at_first.mean:.3g} at first"
    elif is_certain and _is_stuck_between_prompts(view, now):
        severity = "warning"
        told = (
            f"reward_mean stays at {reward_now.mean:.3g}, with rewards that differ between prompts as much "
            "as at first, and hardly within a group"
        )
    else:
        return []
    return [
        Finding(
            "policy_collapse",
            severity,
            f"in {span(now)} policy_entropy is {entropy:.3g} nats ({entropy_at_first:.3g} in "
            f"{span(view.head)}), in {ties:.0%} of the groups all rewards are equal ({ties_at_first:.0%}), "
            f"and {told}",
            _COLLAPSE_ADVICE,
            {
                "policy_entropy": entropy,
                "policy_entropy_at_first": entropy_at_first,
                "zero_std_group_fraction": ties,
                "zero_std_group_fraction_at_first": ties_at_first,
                "reward_mean": reward_now.mean,
                "reward_mean_at_first": reward_at_first.mean,
                "reward_mean_at_best": best.mean,
            },
        )
    ]


def _has_nothing_gained(view: SeriesView, now: Rows) -> bool:
    """Whether the reward is below its beginning, or all get what was the mean at first.

    That it is no higher than at first does not suffice: a base model that gets nearly all right has little
    to gain, and its policy settles too.
    """
    reward_now, reward_at_first = reward(now), reward(view.head)
    all_get_the_same = mean(now, names.REWARD_STD_BATCH) <= at.SPREAD_VANISHED * mean(
        view.head, names.REWARD_STD_BATCH
    )
    return fell(reward_now, reward_at_first, reward_spread(view)) or (
        all_get_the_same and reward_now.mean <= reward_at_first.mean
    )


def _is_stuck_between_prompts(view: SeriesView, now: Rows) -> bool:
    before = view.tail[-3 * at.BLOCK_ROLLOUTS : -at.BLOCK_ROLLOUTS]
    spread_at_first = mean(view.head, names.REWARD_STD_BATCH)
    return (
        is_no_better(reward(now), reward(before))
        and mean(before, names.ZERO_STD_GROUP_FRACTION) >= at.GROUPS_TIED
        and spread_at_first > 0
        and mean(now, names.REWARD_STD_BATCH) >= at.SPREAD_KEPT * spread_at_first
    )


def _collapse_is_over(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    now = newest(view)
    entropy, entropy_at_first = (mean(rows, names.POLICY_ENTROPY) for rows in (now, view.head))
    explores = at.ENTROPY_BACK * entropy_at_first < entropy < at.ENTROPY_SETTLED * entropy_at_first
    is_mixed = mean(now, names.ZERO_STD_GROUP_FRACTION) < at.GROUPS_MIXED
    has_learnt = gained(reward(now), reward(view.head), reward_spread(view)) and mean(
        now, names.REWARD_STD_BATCH
    ) <= at.SPREAD_GONE * mean(view.head, names.REWARD_STD_BATCH)
    return (explores and is_mixed) or has_learnt


def _find_explosion(view: SeriesView, setting: JobSetting) -> list[Finding]:
    if view.rollout_count < 2 * at.BLOCK_ROLLOUTS:
        return []
    now = newest(view)
    length, truncated = mean(now, names.RESPONSE_LENGTH_MEAN), mean(now, names.TRUNCATED_FRACTION)
    if not truncated >= at.TRUNCATED:
        return []
    reward_now, spread = reward(now), reward_spread(view)
    for before in earlier_blocks(view):
        length_before = mean(before, names.RESPONSE_LENGTH_MEAN)
        truncated_before = mean(before, names.TRUNCATED_FRACTION)
        reward_before = reward(before)
        room = setting.max_response_length - length_before
        if (
            truncated >= truncated_before + at.TRUNCATED_ROSE
            and length - length_before >= at.ROOM_TAKEN * room
            and is_no_better(reward_now, reward_before)
        ):
            has_fallen = fell(reward_now, reward_before, spread)
            return [
                Finding(
                    "length_explosion",
                    "critical" if has_fallen else "warning",
                    f"response_length_mean went from {length_before:.4g} tokens in {span(before)} to "
                    f"{length:.4g} in {span(now)}, {truncated:.0%} of the completions are cut at "
                    f"max_response_length ({setting.max_response_length}; {truncated_before:.0%} before), "
                    f"and reward_mean went from {reward_before.mean:.3g} to {reward_now.mean:.3g}",
                    "read the newest completions: where they ramble try length_penalty or repetition_penalty "
                    "beside the rewards, or a higher kl_coef; where they are cut in good work raise "
                    "max_response_length, or set mask_truncated",
                    {
                        "response_length_mean": length,
                        "response_length_mean_before": length_before,
                        "truncated_fraction": truncated,
                        "truncated_fraction_before": truncated_before,
                        "reward_mean": reward_now.mean,
                        "reward_mean_before": reward_before.mean,
                    },
                )
            ]
    return []


def _explosion_is_over(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    now = newest(view)
    reward_before = episode.evidence["reward_mean_before"]
    reward_now = level(now, names.REWARD_MEAN)
    has_paid_off = (
        reward_now.mean - reward_before > at.CERTAIN_ERRORS * reward_now.error
        and reward_now.mean - reward_before >= at.CLEAR_SHARE * reward_spread(view)
    )
    return mean(now, names.TRUNCATED_FRACTION) < at.TRUNCATED_NO_MORE or has_paid_off


def _find_blowup(view: SeriesView, setting: JobSetting) -> list[Finding]:
    if not setting.has_reference or view.rollout_count < at.SETTLED_ROLLOUTS:
        return []
    now, before = view.tail[-at.KL_ROLLOUTS :], view.tail[: at.KL_BEFORE_ROLLOUTS]
    distance, distance_before = median(now, names.KL_DIV), median(before, names.KL_DIV)
    reward_now, reward_before = reward(newest(view)), reward(before)
    rose = distance >= at.KL_LARGE and distance >= at.KL_ROSE * distance_before
    if not (rose and is_no_better(reward_now, reward_before)):
        return []
    is_ruin = distance >= at.KL_RUIN or fell(reward_now, reward_before, reward_spread(view))
    return [
        Finding(
            "kl_blowup",
            "critical" if is_ruin else "warning",
            f"the median of kl_div went from {distance_before:.3g} nats per token in {span(before)} to "
            f"{distance:.3g} in {span(now)}, and reward_mean from {reward_before.mean:.3g} to "
            f"{reward_now.mean:.3g}",
            "go back to an earlier checkpoint, and try a lower learning_rate, a higher kl_coef, or a lower "
            "max_grad_norm",
            {
                "kl_div": distance,
                "kl_div_before": distance_before,
                "reward_mean": reward_now.mean,
                "reward_mean_before": reward_before.mean,
            },
        )
    ]


def _blowup_is_over(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    return median(view.tail[-at.KL_ROLLOUTS :], names.KL_DIV) < at.KL_BACK


POLICY_COLLAPSE: Final = Detector("policy_collapse", _find_collapse, _collapse_is_over)
LENGTH_EXPLOSION: Final = Detector("length_explosion", _find_explosion, _explosion_is_over)
KL_BLOWUP: Final = Detector("kl_blowup", _find_blowup, _blowup_is_over)
