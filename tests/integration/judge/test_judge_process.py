"""The built-in server with a judge, as a process, and the trainer's scorer in front of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import KEY, completion, error, scores

from plaudit.errors import InvalidArgumentError
from plaudit.scoring import CompletionScores, RewardScorer
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import ChatMessage, Completion, Failed, FailureCode, Outcome, Prompt, Scored

WAIT_SECONDS = 60.0
RUBRIC = [{"name": "clarity", "description": "Is it clear?"}]
GOOD = completion(scores(clarity=0.75), usage=(100, 20))


class Server:
    """`python -m reward_service` with a profile "main"."""

    def __init__(self, folder: Path, url: str | None, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        config = folder / "plaudit.toml"
        if url is None:
            config.write_text("")
        else:
            config.write_text(
                '[reward.judge.profiles.main]\nmodel = "judge-1"\ncredential = "judge-key"\n'
                f'base_url = "{url}"\n'
            )
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PLAUDIT_")},
            "PLAUDIT_CONFIG": str(config),
            "PLAUDIT_DATA_DIR": str(folder / "data"),
            "PLAUDIT_CREDENTIAL_JUDGE_KEY": KEY,
            **(environment or {}),
        }

    @contextmanager
    def running(self) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """The process and its address."""
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "reward_service", "--address", "127.0.0.1:0", "--die-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield process, json.loads(line)["address"] if line else ""
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_SECONDS)


def scorer(address: str, job_id: str = "job-1", **config: Any) -> RewardScorer:
    binding = RewardBinding(
        name="judge",
        server="builtin",
        reward="frontier_judge",
        timeout_seconds=30.0,
        config={"profile": "main", "rubric": RUBRIC, "max_tokens": 100, **config},
    )
    target = RewardTarget(binding=binding, addresses=(address,))
    return RewardScorer([target], session_scope=f"{job_id}-0", job_id=job_id, model="tiny")


def outcomes(scorer: RewardScorer, texts: list[str]) -> list[Outcome]:
    prompt = Prompt("1-g0", (ChatMessage("user", "Why?"),), {}, "Why?")
    ids = [f"1-{number}" for number in range(len(texts))]
    for completion_id, text in zip(ids, texts, strict=True):
        scorer.submit(prompt, Completion(completion_id, text, 5), step=1, group_size=len(texts))
    assert scorer.wait(ids, WAIT_SECONDS)
    taken: dict[str, CompletionScores] = scorer.take(ids)
    return [taken[completion_id].outcomes["judge"].outcome for completion_id in ids]


def judged(address: str, texts: list[str], **config: Any) -> tuple[list[Outcome], str | None]:
    """Outcomes of a run, and why its job is to pause."""
    with scorer(address, **config) as scores_of:
        assert scores_of.wait_ready(WAIT_SECONDS)
        return outcomes(scores_of, texts), scores_of.pause_reason()


async def test_the_second_run_asks_half(tmp_path: Path, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    texts = [f"text {number}" for number in range(64)]
    with Server(tmp_path, endpoint.url).running() as (_, address):
        # 32 that are new, twice each, and one call to see whether the judge is there
        found, pause = await asyncio.to_thread(judged, address, texts[:32] * 2)
        assert len(endpoint.calls) == 33
        # 32 that are new and 32 that are known
        again, _ = await asyncio.to_thread(judged, address, texts)
        assert len(endpoint.calls) == 33 + 32
    values = [outcome.value for outcome in found + again if isinstance(outcome, Scored)]
    assert values == [0.75] * 128
    assert pause is None


async def test_a_budget_pauses_the_job_and_outlives_a_killed_server(
    tmp_path: Path, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(GOOD)
    server = Server(tmp_path, endpoint.url)
    budget = {"budget_tokens": 6000}

    def spend_and_be_killed() -> None:
        with server.running() as (process, address), scorer(address, **budget) as scores_of:
            found = outcomes(scores_of, [f"a {number}" for number in range(10)])
            assert all(isinstance(outcome, Scored) for outcome in found)
            process.send_signal(signal.SIGKILL)
            process.wait()

    await asyncio.to_thread(spend_and_be_killed)
    # a lock that the dead process held is nobody's
    with server.running() as (_, address):
        texts = [f"b {number}" for number in range(100)]
        found, pause = await asyncio.to_thread(judged, address, texts, **budget)
    spent = 120 * (10 + sum(isinstance(outcome, Scored) for outcome in found))
    assert 3000 < spent <= 6000
    failed = [outcome for outcome in found if isinstance(outcome, Failed)]
    assert {outcome.code for outcome in failed} == {FailureCode.EXHAUSTED}
    assert pause is not None
    assert "budget_tokens of 6000" in pause


async def test_the_key_stands_nowhere(tmp_path: Path, serve_endpoint: Any) -> None:
    def script(call: Any, number: int) -> Any:
        said = f"key {call.headers['authorization']}"
        return completion(scores(said, clarity=0.5)) if number < 5 else completion(said, usage=None)

    endpoint = await serve_endpoint(script=script)
    server = Server(tmp_path, endpoint.url, {"PLAUDIT_REWARD_LOG_LEVEL": "debug", "OPENAI_LOG": "debug"})
    with server.running() as (_, address):
        found, _ = await asyncio.to_thread(judged, address, [f"text {number}" for number in range(8)])
    assert KEY in endpoint.calls[0].headers["authorization"]
    assert KEY not in repr(found)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


async def test_wrong_key_and_wrong_profile_are_told_when_the_session_opens(
    tmp_path: Path, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(error(401, f"Incorrect API key provided: {KEY}"))
    server = Server(tmp_path, endpoint.url)

    def refusal(address: str, **config: Any) -> str:
        with scorer(address, **config) as scores_of:
            with pytest.raises(InvalidArgumentError) as raised:
                scores_of.wait_ready(WAIT_SECONDS)
            return str(raised.value)

    with server.running() as (_, address):
        told = await asyncio.to_thread(refusal, address)
        assert 'look at its key "judge-key"' in told
        assert "HTTP 401" in told
        assert KEY not in told
        told = await asyncio.to_thread(refusal, address, profile="other")
        assert '"other" is no judge of this reward server; there are main' in told


def test_a_missing_key_fails_the_start(tmp_path: Path) -> None:
    server = Server(tmp_path, "http://127.0.0.1:9/v1", {"PLAUDIT_CREDENTIAL_JUDGE_KEY": ""})
    with server.running() as (process, address):
        assert not address
        assert process.wait(WAIT_SECONDS) != 0
    log = server.log.read_text()
    assert 'judge profile main: credential "judge-key" is missing' in log
    assert "Traceback" not in log


def test_without_the_extra_the_server_starts_and_the_reward_says_what_to_install(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("openai", "anthropic", "aiohttp", "httpx2"):
        (blocked / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}')")
    path = os.pathsep.join([str(blocked), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = Server(tmp_path, "http://127.0.0.1:9/v1", {"PYTHONPATH": path})
    with ExitStack() as stack:
        _, address = stack.enter_context(server.running())
        scores_of = stack.enter_context(scorer(address))
        with pytest.raises(InvalidArgumentError, match=r"pip install 'plaudit\[judge\]'"):
            scores_of.wait_ready(WAIT_SECONDS)


def test_without_a_profile_two_servers_may_share_a_folder(tmp_path: Path) -> None:
    server = Server(tmp_path, None)
    with (
        server.running() as (_, address),
        server.running() as (_, other),
        scorer(address) as scores_of,
    ):
        assert other
        with pytest.raises(InvalidArgumentError, match="this reward server has no judge"):
            scores_of.wait_ready(WAIT_SECONDS)
