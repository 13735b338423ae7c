"""Judges: language models behind an API that rate completions by a rubric.

Provider port, prompts, strict verdicts, cache, limits and budgets. It knows no reward; the rewards that ask
it are in `reward_service.rewards.frontier_judge`.
"""

from reward_service.judge._budget import Budget
from reward_service.judge._degenerate import why_degenerate
from reward_service.judge._endpoint import NotJudgedError, Terms
from reward_service.judge._judge import Judge, Judgement, open_judge
from reward_service.judge._question import (
    Criterion,
    Question,
    Sampling,
    Task,
    ranking_question,
    rubric_question,
)
from reward_service.judge.settings import JudgeProfile, JudgeSettings

__all__ = [
    "Budget",
    "Criterion",
    "Judge",
    "JudgeProfile",
    "JudgeSettings",
    "Judgement",
    "NotJudgedError",
    "Question",
    "Sampling",
    "Task",
    "Terms",
    "open_judge",
    "ranking_question",
    "rubric_question",
    "why_degenerate",
]
