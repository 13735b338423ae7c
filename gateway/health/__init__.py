"""Failure modes, read off the metric series of a job. Pure functions: no store, no clock, no memory.

docs/alerts.md says what each kind rests on.
"""

from gateway.health.episodes import Verdict, judge, judge_evaluation
from gateway.health.findings import Episode, Finding
from gateway.health.series import Evaluation, Rows, SeriesView
from gateway.health.setting import JobSetting, RewardSetting, setting_of, watched_metrics
from gateway.health.thresholds import BLOCK_ROLLOUTS
from gateway.health.window import Window

__all__ = [
    "BLOCK_ROLLOUTS",
    "Episode",
    "Evaluation",
    "Finding",
    "JobSetting",
    "RewardSetting",
    "Rows",
    "SeriesView",
    "Verdict",
    "Window",
    "judge",
    "judge_evaluation",
    "setting_of",
    "watched_metrics",
]
