"""What the rewards say: nothing that tells completions apart, failures, or what breaks the contract."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Final

from gateway.health import thresholds as at
from gateway.health.findings import Detector, Episode, Finding
from gateway.health.series import Rows, SeriesView, mean, span, values
from gateway.health.setting import JobSetting
from plaudit.types import metrics as names


def _teaching_share(row: Mapping[str, float]) -> float:
    """Share of all groups of a rollout in which at least two scored completions have different rewards."""
    small = row.get(names.SMALL_GROUP_FRACTION, 0.0)
    tied = row.get(names.ZERO_STD_GROUP_FRACTION, math.nan)
    return 0.0 if math.isnan(tied) else (1.0 - small) * (1.0 - tied)


def _find_no_signal(view: SeriesView, setting: JobSetting) -> list[Finding]:
    rollouts = view.rollout_count
    if rollouts < at.SIGNAL_ROLLOUTS or rollouts * setting.groups_per_rollout < at.SIGNAL_GROUPS:
        return []
    # From the start on, or it is another failure mode: later the tail does not hold all rollouts any more.
    if rollouts > len(view.tail):
        return []
    teaching = statistics.fmean(_teaching_share(row) for _, row in view.tail)
    fails = mean(view.tail, names.UNSCORED_FRACTION) >= at.FAILING_MOST
    if teaching > at.SIGNAL_NONE or fails:
        return []
    reward_mean, spread = mean(view.tail, names.REWARD_MEAN), mean(view.tail, names.REWARD_STD_BATCH)
    if spread > 0:
        told = f"the mean is {reward_mean:.3g}: prompts get different rewards, but not the answers to one"
    elif math.isnan(spread):
        told = "too few are scored to tell whether they differ"
    else:
        told = f"all get {reward_mean:.3g}"
    return [
        Finding(
            "no_learning_signal",
            "critical" if teaching == 0.0 else "warning",
            f"since the start, in {span(view.tail)}, {teaching:.1%} of the groups hold different rewards; "
            f"{told}",
            "where all get the worst reward try easier prompts, a few examples in the prompt, sft first, or "
            "a graded reward; where all get the best, harder prompts; else a higher temperature or more "
            "rollouts_per_prompt",
            {
                "informative_group_fraction": teaching,
                "reward_mean": reward_mean,
                "reward_std_batch": spread,
                "rollouts": float(rollouts),
            },
        )
    ]


def _signal_is_there(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    newest = view.tail[-at.BLOCK_ROLLOUTS :]
    return statistics.fmean(_teaching_share(row) for _, row in newest) >= at.SIGNAL_SOME


def _find_failures(view: SeriesView, setting: JobSetting) -> list[Finding]:
    recent = view.tail[-at.FAILURE_ROLLOUTS :]
    of_rewards = [
        finding
        for reward in setting.rewards
        for finding in _failures(
            recent,
            names.reward_metric(reward.name, "failed_fraction"),
            f"reward {reward.name}",
            reward.name,
            is_held_out=reward.is_held_out,
        )
    ]
    # Several rewards that each fail on a few may leave many completions unscored.
    return of_rewards or _failures(recent, names.UNSCORED_FRACTION, "at least one reward", "")


def _failures(
    recent: Rows, metric: str, who: str, subject: str, *, is_held_out: bool = False
) -> list[Finding]:
    shares = [row.get(metric, math.nan) for _, row in recent]
    newest, share = shares[-1], mean(recent, metric)
    lasting = (
        len(recent) == at.FAILURE_ROLLOUTS
        and share >= at.FAILING
        and sum(s > at.FAILING_NO_MORE for s in shares) >= at.FAILING_ROLLOUTS
    )
    if not (lasting or newest >= at.FAILING_MOST):
        return []
    is_most = newest >= at.FAILING_MOST or share >= at.FAILING_MOST
    place = f"step {recent[-1][0]}" if newest >= at.FAILING_MOST else span(recent)
    told = newest if newest >= at.FAILING_MOST else share
    return [
        Finding(
            "reward_failures",
            "critical" if is_most and not is_held_out else "warning",
            f"{who} failed on {told:.0%} of the completions of {place}; "
            + (
                "it is held out, so that they are learnt from all the same"
                if is_held_out
                else "they move nothing"
            ),
            "see the job's log for the causes and plaudit reward-server list for the servers; where they are "
            "too slow raise timeout_seconds of the reward, or give it more replicas",
            {"failed_fraction": told, "rollouts": float(len(recent))},
            subject,
        )
    ]


def _failures_are_over(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    if episode.subject:
        metric = names.reward_metric(episode.subject, "failed_fraction")
    else:
        metric = names.UNSCORED_FRACTION
    shares = values(view.tail[-at.FAILURE_ROLLOUTS :], metric)
    return len(shares) == at.FAILURE_ROLLOUTS and max(shares) <= at.FAILING_NO_MORE


def _find_protocol_errors(view: SeriesView, setting: JobSetting) -> list[Finding]:
    recent = view.tail[-at.PROTOCOL_ROLLOUTS :]
    found = []
    for reward in setting.rewards:
        counts = values(recent, names.reward_metric(reward.name, "protocol_errors"))
        if sum(count > 0 for count in counts) >= at.PROTOCOL_BAD_ROLLOUTS:
            found.append(
                Finding(
                    "reward_protocol_errors",
                    "warning",
                    f"in {span(recent)} the server of reward {reward.name} broke the contract "
                    f"{sum(counts):.0f} times, in {sum(count > 0 for count in counts)} of {len(counts)} "
                    "rollouts; such answers do not count",
                    "see the job's log for what was wrong, and run plaudit reward conformance against the "
                    "server",
                    {"protocol_errors": sum(counts), "rollouts": float(len(counts))},
                    reward.name,
                )
            )
    return found


def _protocol_is_kept(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    recent = view.tail[-at.PROTOCOL_QUIET_ROLLOUTS :]
    counts = values(recent, names.reward_metric(episode.subject, "protocol_errors"))
    return len(counts) == at.PROTOCOL_QUIET_ROLLOUTS and max(counts) == 0.0


NO_LEARNING_SIGNAL: Final = Detector("no_learning_signal", _find_no_signal, _signal_is_there)
REWARD_FAILURES: Final = Detector("reward_failures", _find_failures, _failures_are_over)
REWARD_PROTOCOL_ERRORS: Final = Detector("reward_protocol_errors", _find_protocol_errors, _protocol_is_kept)
