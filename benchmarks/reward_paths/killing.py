"""Many completions over three servers, of which one is killed at random every two seconds."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import ProgramFailedError

from plaudit.scoring import ProtocolCounters, RewardScorer
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import Scored
from reward_paths.work import GROUP_SIZE, PACED_REWARD, length_share, rollout

SERVERS = 3
KILL_EVERY_SECONDS = 2.0

_STEP = 4096
"""Completions that are handed in and taken together, as a rollout's."""

_STEPS_UNDER_WAY = 3
_PATIENCE_SECONDS = 300.0
_SEED = 7


@dataclass(frozen=True, slots=True)
class Losses:
    """What became of the completions. `lost`: without their right score; `doubled`: handed over twice."""

    completions: int
    lost: int
    doubled: int
    kills: int
    seconds: float
    counters: ProtocolCounters


class KillableServer:
    """A kit server on a port of its own, started anew each time that it is killed."""

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self._environment = environment
        self.address = "127.0.0.1:0"
        self._process = self._start()

    def kill(self) -> None:
        """SIGKILL, and a new start."""
        self._process.kill()
        self._process.communicate()
        self._process = self._start()

    def end(self) -> None:
        """Ends it for good."""
        self._process.kill()
        self._process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "reward_paths.kit_server"),
                    *("--address", self.address, "--die-with-stdin"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=dict(self._environment),
            )
        if self.address.endswith(":0"):
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise ProgramFailedError(f"a reward server did not start:\n{self._log.read_text()[-3000:]}")
            self.address = json.loads(line)["address"]
        return process


def score_while_killing(completions: int, folder: Path, environment: Mapping[str, str]) -> Losses:
    """Scores `completions` completions. Raises ProgramFailedError."""
    servers = [KillableServer(folder / f"killed-{i}.log", environment) for i in range(SERVERS)]
    over = threading.Event()
    kills: list[int] = []

    def kill_now_and_then() -> None:
        source = random.Random(_SEED)
        while not over.wait(KILL_EVERY_SECONDS):
            victim = source.randrange(SERVERS)
            kills.append(victim)
            servers[victim].kill()

    killer = threading.Thread(target=kill_now_and_then)
    try:
        target = RewardTarget(
            binding=RewardBinding(name=PACED_REWARD, server="benchmark", reward=PACED_REWARD),
            addresses=tuple(server.address for server in servers),
        )
        with RewardScorer([target], session_scope="killing", job_id="benchmark", model="none") as scorer:
            scorer.wait_ready(_PATIENCE_SECONDS)
            killer.start()
            began = time.perf_counter()
            lost, doubled = _score(scorer, completions)
            seconds = time.perf_counter() - began
            return Losses(completions, lost, doubled, len(kills), seconds, scorer.counters())
    finally:
        over.set()
        if killer.ident is not None:
            killer.join()
        for server in servers:
            server.end()


def _score(scorer: RewardScorer, completions: int) -> tuple[int, int]:
    """Counts what is lost and what is handed over more than once."""
    handed_over: Counter[str] = Counter()
    right = 0
    texts_by_step: dict[int, dict[str, str]] = {}

    def take(step: int) -> int:
        texts = texts_by_step.pop(step)
        scorer.wait(texts, _PATIENCE_SECONDS)
        scores = scorer.take(texts)
        handed_over.update(scores.keys())
        return sum(
            isinstance(outcome := scores[completion_id].outcomes[PACED_REWARD].outcome, Scored)
            and outcome.value == length_share(text)
            for completion_id, text in texts.items()
        )

    for step in range(1, completions // _STEP + 1):
        texts = texts_by_step[step] = {}
        for prompt, group in rollout(step, _STEP):
            for completion in group:
                texts[completion.completion_id] = completion.text
                scorer.submit(prompt, completion, step=step, group_size=GROUP_SIZE)
        if len(texts_by_step) == _STEPS_UNDER_WAY:
            right += take(min(texts_by_step))
    for step in sorted(texts_by_step):
        right += take(step)
    return completions - right, sum(count - 1 for count in handed_over.values())
