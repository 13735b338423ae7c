"""A side's program: for every line of its stdin it scores some completions and says how long that took."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

import psutil

from plaudit.types.scoring import Completion, Prompt
from reward_paths.work import length_share, rollout

Rollout: TypeAlias = Sequence[tuple[Prompt, Sequence[Completion]]]
Requests = TypeVar("Requests")
Answers = TypeVar("Answers")


class Path(Protocol[Requests, Answers]):
    """A way to the reward. The clock runs for `score` alone."""

    def prepare(self, work: Rollout) -> Requests:
        """What a trainer on this path would have at hand when its completions are sampled."""

    def score(self, requests: Requests) -> Answers:
        """Has everything scored."""

    def values(self, answers: Answers) -> Mapping[str, float]:
        """The values by completion id."""


def take_turns(path: Path[Requests, Answers], server_pid: int, completions: int) -> None:
    """Scores `completions` completions a turn; says the rate, per second, what was wrong, and processor time.

    `server_pid` is of the process on the other side.
    """
    client, server = psutil.Process(), psutil.Process(server_pid)
    _say(event="ready")
    for step, _ in enumerate(sys.stdin, 1):
        work = list(rollout(step, completions))
        requests = path.prepare(work)
        # Else every side would pay for the collector's walks over what is only made for the benchmark.
        gc.collect()
        gc.freeze()
        began, client_began, server_began = time.perf_counter(), _cpu_seconds(client), _cpu_seconds(server)
        answers = path.score(requests)
        seconds = time.perf_counter() - began
        client_cpu = _cpu_seconds(client) - client_began
        server_cpu = _cpu_seconds(server) - server_began
        gc.unfreeze()
        values = path.values(answers)
        wrong = sum(
            values.get(completion.completion_id) != length_share(completion.text)
            for _, group in work
            for completion in group
        )
        _say(
            event="turn",
            rate=completions / seconds,
            client_microseconds=1e6 * client_cpu / completions,
            server_microseconds=1e6 * server_cpu / completions,
            wrong=wrong,
        )


def _cpu_seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)
