"""What the tests of the scorer share: targets, completions, ways to score them, and a server process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plaudit.scoring import CompletionScores, RewardScorer
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import ChatMessage, Completion, Prompt

WAIT_SECONDS = 30.0
"""Far more than anything here takes: what it bounds is a hang."""


def target(
    *addresses: str,
    name: str = "length",
    server: str = "scripted",
    reward: str = "length",
    timeout_seconds: float = 20.0,
    config: dict[str, Any] | None = None,
) -> RewardTarget:
    return RewardTarget(
        binding=RewardBinding(
            name=name, server=server, reward=reward, timeout_seconds=timeout_seconds, config=config or {}
        ),
        addresses=addresses,
    )


def completion(index: int, text: str | None = None) -> Completion:
    return Completion(completion_id=f"1-{index}", text="x" * (index + 1) if text is None else text)


def prompt(group: int = 0, **columns: Any) -> Prompt:
    return Prompt(
        group_id=f"1-g{group}", messages=(ChatMessage("user", "hi"),), columns=columns, text="<user>hi"
    )


def submit_all(scorer: RewardScorer, completions: Sequence[Completion], group_size: int = 8) -> list[str]:
    """Hands them in, `group_size` to a group, and returns their ids."""
    for index, one in enumerate(completions):
        scorer.submit(prompt(index // group_size), one, step=1, group_size=group_size)
    return [one.completion_id for one in completions]


def score_all(
    scorer: RewardScorer, completions: Sequence[Completion], group_size: int = 8
) -> dict[str, CompletionScores]:
    """Hands them in, waits for all outcomes, and takes them."""
    ids = submit_all(scorer, completions, group_size)
    assert scorer.wait(ids, WAIT_SECONDS)
    return scorer.take(ids)


def eventually(condition: Callable[[], object], timeout: float = WAIT_SECONDS) -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class ServerProcess:
    """A server in a process of its own: a well-behaved one, or what else `program` is."""

    def __init__(self, *arguments: str, port: int = 0, program: str = "scoring_servers.py") -> None:
        self._arguments = arguments
        self._program = program
        self.port = port
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        program = Path(__file__).with_name(self._program)
        self.process = subprocess.Popen(
            [sys.executable, str(program), "--port", str(self.port), *self._arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> str:
        """kill -9; returns what it had printed."""
        self.process.kill()
        return self.process.communicate()[0]
