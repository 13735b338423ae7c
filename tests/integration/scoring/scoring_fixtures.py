"""Servers that are stopped, processes that are ended, and scorers that are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scoring_helpers import ServerProcess
from scoring_servers import Script, ScriptedServer

from plaudit.scoring import RewardScorer, ScoringLimits
from plaudit.types.jobs import RewardTarget


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def make(*scripts: Script, **settings: Any) -> ScriptedServer:
        servers.append(ScriptedServer(*scripts, **settings))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def serve_process() -> Iterator[Callable[..., ServerProcess]]:
    processes: list[ServerProcess] = []

    def make(*arguments: str, **settings: Any) -> ServerProcess:
        processes.append(ServerProcess(*arguments, **settings))
        return processes[-1]

    yield make
    for process in processes:
        if process.process.poll() is None:
            process.kill()


@pytest.fixture
def make_scorer() -> Iterator[Callable[..., RewardScorer]]:
    """A started scorer; keyword arguments are ScoringLimits, or for all of its rewards how often to try."""
    scorers: list[RewardScorer] = []

    def make(*targets: RewardTarget, **limits: Any) -> RewardScorer:
        tries = {name: limits.pop(name) for name in ("max_attempts", "retry_seconds") if name in limits}
        scorer = RewardScorer(
            [t.model_copy(update={"binding": t.binding.model_copy(update=tries)}) for t in targets],
            session_scope="run:0",
            job_id="job-1",
            model="tiny",
            limits=ScoringLimits(**limits),
        )
        scorers.append(scorer)
        scorer.start()
        return scorer

    yield make
    for scorer in scorers:
        scorer.close(1.0)
