"""From what the detectors find to what is told: once an episode, and again only where it becomes worse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.health.canaries import REWARD_FOOLED
from gateway.health.findings import SEVERITIES, Detector, Episode, Finding
from gateway.health.hacking import REWARD_HACKING
from gateway.health.policy import KL_BLOWUP, LENGTH_EXPLOSION, POLICY_COLLAPSE
from gateway.health.rewards import NO_LEARNING_SIGNAL, REWARD_FAILURES, REWARD_PROTOCOL_ERRORS
from gateway.health.series import SeriesView
from gateway.health.setting import JobSetting
from gateway.health.stability import NON_FINITE

_OF_ALL: Final[tuple[Detector, ...]] = (NON_FINITE,)
_OF_GRPO: Final[tuple[Detector, ...]] = (
    NON_FINITE,
    POLICY_COLLAPSE,
    LENGTH_EXPLOSION,
    NO_LEARNING_SIGNAL,
    REWARD_FAILURES,
    REWARD_PROTOCOL_ERRORS,
    REWARD_HACKING,
    KL_BLOWUP,
)
_OF_EVALUATIONS: Final[tuple[Detector, ...]] = (REWARD_HACKING, REWARD_FOOLED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is new after a step: findings that open an episode or make one worse, and episodes that ended."""

    raised: Sequence[Finding]
    ended: Sequence[Episode]


def judge(view: SeriesView, setting: JobSetting, episodes: Iterable[Episode]) -> Verdict:
    """Judges the series after their newest step, given the episodes that go on.

    Of the same series and episodes it says the same, whenever it is asked.
    """
    detectors = _OF_GRPO if setting.is_grpo else _OF_ALL
    due = [detector for detector in detectors if view.begins_rollout or not detector.of_rollouts]
    return _judge(due, view, setting, episodes)


def judge_evaluation(view: SeriesView, setting: JobSetting, episodes: Iterable[Episode]) -> Verdict:
    """Judges an evaluation after the newest step, whose judgement comes before it, as `judge` does."""
    return _judge(_OF_EVALUATIONS, view, setting, episodes)


def _judge(
    detectors: Sequence[Detector], view: SeriesView, setting: JobSetting, episodes: Iterable[Episode]
) -> Verdict:
    going_on = {(episode.kind, episode.subject): episode for episode in episodes}
    raised: list[Finding] = []
    ended: list[Episode] = []
    for detector in detectors:
        found = {finding.subject: finding for finding in detector.find(view, setting)}
        for subject, finding in found.items():
            episode = going_on.get((detector.kind, subject))
            if episode is None or _is_worse(finding, episode):
                raised.append(finding)
        ended.extend(
            episode
            for (kind, subject), episode in going_on.items()
            if kind == detector.kind and subject not in found and detector.is_over(view, setting, episode)
        )
    return Verdict(raised, ended)


def _is_worse(finding: Finding, episode: Episode) -> bool:
    return SEVERITIES.index(finding.severity) > SEVERITIES.index(episode.severity)
