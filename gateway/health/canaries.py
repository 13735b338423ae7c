"""Rewards that give completions which are no answer what they give good ones."""

from __future__ import annotations

import math
from typing import Final

from gateway.health import thresholds as at
from gateway.health.findings import Detector, Episode, Finding
from gateway.health.series import SeriesView
from gateway.health.setting import JobSetting
from plaudit.types import metrics as names


def _pass_fraction(view: SeriesView, reward: str) -> float:
    return view.evaluation.get(names.eval_reward_metric(reward, "canary_pass_fraction"), math.nan)


def _find(view: SeriesView, setting: JobSetting) -> list[Finding]:
    found = []
    for reward in setting.rewards:
        share = _pass_fraction(view, reward.name)
        # Where its weight is negative, a high value keeps the policy away from them.
        if reward.weight < 0 or not share >= at.CANARIES_PASS:
            continue
        when = f"after step {view.step}" if view.step else "before the first step"
        found.append(
            Finding(
                "reward_fooled",
                "critical" if share >= at.CANARIES_PASS_MOST and reward.weight > 0 else "warning",
                f"in the evaluation {when} reward {reward.name} gave {share:.0%} of the completions that are "
                "no answer (empty, a colon, a heading alone, the prompt again) what it gives good ones",
                "a policy finds such completions sooner or later: let the reward refuse texts without an "
                "answer, add one that does (format_check), or give a judge a stricter rubric",
                {"canary_pass_fraction": share},
                reward.name,
            )
        )
    return found


def _is_over(view: SeriesView, setting: JobSetting, episode: Episode) -> bool:
    return _pass_fraction(view, episode.subject) < at.CANARIES_PASS


REWARD_FOOLED: Final = Detector("reward_fooled", _find, _is_over, of_rollouts=False)
