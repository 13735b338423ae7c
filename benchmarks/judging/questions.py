"""Trainer's scorer, built-in reward server and endpoint, a process each, and a clock."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness import Figure, ProgramFailedError, serving

from judging.work import CRITERION, GROUP_SIZE, questions
from plaudit.scoring import CompletionScores, RewardScorer
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import Scored

ANSWER_MILLISECONDS = 50
CONCURRENCY = 16
"""Calls at once. Far more, and the limit would be what two cores can send, not what the judge can answer."""

FIRST_ANSWER_SECONDS = 1.0
MOST_TIMES_THE_LIMIT = 1.3

_REWARD = "judge"
_PATIENCE_SECONDS = 60.0
_MOST_TIMES_WAITED = 6.0


async def judge_figures(count: int = 16_000) -> list[Figure]:
    """Figures for `count` questions that are asked at once. Takes about a minute with 16,000.

    The rival is the limit that the concurrency sets: `count` questions, so many at once, each taking what the
    endpoint takes. Raises ProgramFailedError where a process fails.
    """
    return await asyncio.to_thread(_figures, count)


def _figures(count: int) -> list[Figure]:
    limit = count * ANSWER_MILLISECONDS / 1000.0 / CONCURRENCY
    with tempfile.TemporaryDirectory(prefix="plaudit-judging-") as name:
        folder = Path(name)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        with serving(
            "endpoint",
            [sys.executable, "-m", "judging.endpoint", str(ANSWER_MILLISECONDS)],
            log=folder / "endpoint.log",
            environment=environment,
        ) as endpoint:
            config = folder / "plaudit.toml"
            config.write_text(
                f'[reward.judge.profiles.main]\nmodel = "benchmark"\nconcurrency = {CONCURRENCY}\n'
                f'base_url = "http://{endpoint["address"]}/v1"\n'
            )
            with serving(
                "reward server",
                [sys.executable, "-m", "reward_service", "--address", "127.0.0.1:0", "--die-with-stdin"],
                log=folder / "reward.log",
                environment={
                    **environment,
                    "PLAUDIT_CONFIG": str(config),
                    "PLAUDIT_DATA_DIR": str(folder / "data"),
                },
            ) as server:
                first, total, missing = _asked(server["address"], count, limit)
    asked = f"{count:,} judge questions at once, {ANSWER_MILLISECONDS} ms each, {CONCURRENCY} at a time"
    return [
        Figure(f"{asked}: first answer", first, "s", FIRST_ANSWER_SECONDS),
        Figure(
            f"{asked}: total against the limit that the concurrency sets",
            total / limit,
            "ratio",
            MOST_TIMES_THE_LIMIT,
            ours=total,
            rival=limit,
        ),
        Figure(f"{asked}: without their verdict", missing, "questions", 0.0),
    ]


def _asked(address: str, count: int, limit: float) -> tuple[float, float, int]:
    """Seconds to the first answer and to the last, and how many lack the verdict that the endpoint gives."""
    config = {
        "profile": "main",
        "rubric": [{"name": CRITERION, "description": "Is every step stated?"}],
    }
    binding = RewardBinding(name=_REWARD, server="benchmark", reward="frontier_judge", config=config)
    target = RewardTarget(binding=binding, addresses=(address,))
    with RewardScorer([target], session_scope="benchmark", job_id="benchmark", model="none") as scorer:
        if not scorer.wait_ready(_PATIENCE_SECONDS):
            raise ProgramFailedError(scorer.status_detail() or "the reward server is not there")
        work = list(questions(count))
        began, began_at = time.perf_counter(), datetime.now(UTC)
        for prompt, completion in work:
            scorer.submit(prompt, completion, step=1, group_size=GROUP_SIZE)
        ids: Sequence[str] = [completion.completion_id for _, completion in work]
        scorer.wait(ids, _MOST_TIMES_WAITED * limit + _PATIENCE_SECONDS)
        total = time.perf_counter() - began
        taken: dict[str, CompletionScores] = scorer.take(ids)
    outcomes = [scores.outcomes[_REWARD] for scores in taken.values()]
    first = min(outcome.scored_at for outcome in outcomes) - began_at
    verdicts = sum(isinstance(o.outcome, Scored) and o.outcome.value == 0.75 for o in outcomes)
    return first.total_seconds(), total, count - verdicts
