"""Reward that climbs for the wrong reason, as far as series can tell: what it should go with falls."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gateway.health import thresholds as at
from gateway.health.blocks import gained, newest, reward, reward_spread
from gateway.health.findings import Detector, Episode, Finding
from gateway.health.series import Evaluation, Rows, SeriesView, level, mean, span
from gateway.health.setting import REPETITION_REWARD, JobSetting, RewardSetting
from plaudit.types import metrics as names

HELD_OUT: Final = "held-out prompts"
LENGTH: Final = "response length"
# Subjects beside the names of rewards, which have neither dash nor blank.

_ADVICE: Final = (
    "read completions with the highest reward of the newest steps: where they do not deserve it, close the "
    "gap in the reward, raise kl_coef, and go on from a checkpoint before the fall"
)


def _find(view: SeriesView, setting: JobSetting) -> list[Finding]:
    found = _held_out_falls(view)
    if view.rollout_count >= at.HACKING_ROLLOUTS:
        found += [finding for one in setting.rewards for finding in _reward_falls(view, one)]
        found += _length_drifts(view)
    return found


def _held_out_falls(view: SeriesView) -> list[Finding]:
    evaluations = view.evaluations
    if len(evaluations) < at.EVALUATIONS:
        return []
    spread = reward_spread(view)
    recent = evaluations[-at.RECENT_EVALUATIONS :]
    # Two together, as one evaluation may be high by chance.
    pairs = list(pairwise(evaluations[: -at.RECENT_EVALUATIONS]))
    best = max(pairs, key=_held_out_mean)
    fall = _held_out_mean(best) - _held_out_mean(recent)
    climb = statistics.fmean(e.trained for e in recent) - statistics.fmean(e.trained for e in best)
    falls_clearly = max(e.held_out for e in recent) < min(e.held_out for e in best)
    if not (falls_clearly and min(fall, climb) >= at.CLEAR_SHARE * spread > 0):
        return []
    return [
        Finding(
            "reward_hacking",
            "critical",
            f"between the evaluations after steps {best[0].step} and {best[1].step} and those after steps "
            f"{recent[0].step} and {recent[-1].step} the reward on held-out prompts fell from "
            f"{_held_out_mean(best):.3g} to {_held_out_mean(recent):.3g}, while reward_mean rose by "
            f"{climb:.3g}",
            _ADVICE,
            {"before": _held_out_mean(best), "now": _held_out_mean(recent), "reward_mean_rise": climb},
            HELD_OUT,
        )
    ]


def _held_out_mean(evaluations: Sequence[Evaluation]) -> float:
    return statistics.fmean(evaluation.held_out for evaluation in evaluations)


def _reward_falls(view: SeriesView, one: RewardSetting) -> list[Finding]:
    """Another reward of the job, or one that is held out, falls while the sum climbs.

    Penalties are left out, as a job trades them for the rest on purpose, but for that of repetition, and for
    those that are held out, which it does not trade.
    """
    metric = names.reward_metric(one.name, "mean")
    now, spread = newest(view), reward_spread(view)
    for before in (view.head, view.tail[: at.BLOCK_ROLLOUTS]):
        mean_now, mean_before = level(now, metric), level(before, metric)
        is_traded = mean_before.mean <= 0 and one.reward != REPETITION_REWARD and not one.is_held_out
        fall = mean_before.mean - mean_now.mean
        own_spread = mean(before, names.reward_metric(one.name, "std"))
        if (
            one.weight >= 0
            and not is_traded
            and mean_before.above(mean_now, at.CERTAIN_ERRORS)
            and fall >= at.LARGE_SHARE * own_spread
            and gained(reward(now), reward(before), spread)
        ):
            return [_fallen_reward(one, before, now, mean_before.mean, mean_now.mean)]
    return []


def _fallen_reward(one: RewardSetting, before: Rows, now: Rows, was: float, is_now: float) -> Finding:
    reward_before, reward_now = reward(before).mean, reward(now).mean
    held_out = "held-out " if one.is_held_out else ""
    return Finding(
        "reward_hacking",
        # What is taught may be traded for the rest of the sum; what is held out only tells.
        "critical" if one.is_held_out else "warning",
        f"between {span(before)} and {span(now)} the {held_out}reward {one.name} fell from {was:.3g} to "
        f"{is_now:.3g}, while reward_mean rose from {reward_before:.3g} to {reward_now:.3g}",
        f"{_ADVICE}; or give {one.name} a {'weight' if one.is_held_out else 'higher weight'}",
        {
            "before": was,
            "now": is_now,
            "reward_mean_before": reward_before,
            "reward_mean": reward_now,
        },
        one.name,
    )


def _length_drifts(view: SeriesView) -> list[Finding]:
    now = newest(view)
    length, length_before = (mean(rows, names.RESPONSE_LENGTH_MEAN) for rows in (now, view.head))
    reward_now, reward_before = reward(now), reward(view.head)
    if not (
        length >= at.LENGTH_DRIFT * length_before
        and length - length_before >= at.LENGTH_DRIFT_TOKENS
        and gained(reward_now, reward_before, reward_spread(view))
    ):
        return []
    return [
        Finding(
            "reward_hacking",
            "info",
            f"between {span(view.head)} and {span(now)} response_length_mean went from {length_before:.4g} "
            f"to {length:.4g} tokens, while reward_mean rose from {reward_before.mean:.3g} to "
            f"{reward_now.mean:.3g}",
            "reasoning grows with what it solves, and so does padding that a reward takes for work: read "
            "some completions to see which",
            {"before": length_before, "now": length},
            LENGTH,
        )
    ]


def _is_over(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    before, then = episode.evidence["before"], episode.evidence["now"]
    if episode.subject == HELD_OUT:
        recent = view.evaluations[-at.RECENT_EVALUATIONS :]
        return bool(recent) and _held_out_mean(recent) >= (before + then) / 2
    if episode.subject == LENGTH:
        return mean(newest(view), names.RESPONSE_LENGTH_MEAN) < at.LENGTH_DRIFT_BACK * before
    return mean(newest(view), names.reward_metric(episode.subject, "mean")) >= (before + then) / 2


REWARD_HACKING: Final = Detector("reward_hacking", _find, _is_over)
