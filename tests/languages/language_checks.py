"""What every server in another language is put through. A check that fails raises AssertionError."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from language_servers import LanguageServer
from language_values import ANSWER_TAG, BAD_CONFIGS, OWN, Expected
from score_conversation import Conversation, batch, group
from stack import Stack, wait_for

from plaudit.cli.demo import DEMO_HYPERPARAMETERS
from plaudit.client import Client, models
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import open_channel
from plaudit.types.metrics import REWARD_MEAN
from plaudit.types.statuses import JobStatus

CONFORMANCE_SECONDS: Final = 240.0
WANTED_OPTIONS: Final = {
    "described",
    "health",
    "explanations",
    "batch-timeout",
    "protocol-version",
    "unknown-reward",
}
"""Optional rules of the contract that all the examples keep."""

SINGLES: Final = 2_000
_SINGLES_IN_FLIGHT: Final = 128

STEPS: Final = 25
TRAINING_SECONDS: Final = 300.0
_ENDS: Final = 5
# Ten times the demo's, so that 25 steps show what its 150 do.
_LEARNING_RATE: Final = 2e-3


def check_conformance(server: LanguageServer, reward: str, *, quick: bool) -> str:
    """`plaudit reward conformance`; returns how many required and optional rules passed."""
    columns = json.dumps({"answer": 72, "reference": "seventy-two"})
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("plaudit")), "reward", "conformance", server.address, "--json",
            "--reward", reward, "--columns", columns, *(["--quick"] if quick else []),
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CONFORMANCE_SECONDS,
    )  # fmt: skip
    assert done.stdout.startswith("{"), done.stderr
    report = json.loads(done.stdout)
    told = "\n".join(f"{r['id']} {r['name']}: {r['text']}" for r in report["rules"] if r["status"] != "pass")
    assert report["conforms"], told
    assert done.returncode == 0, done.stderr
    passed = {r["name"] for r in report["rules"] if r["status"] == "pass"}
    # A trainer's pings must not be taken for abuse, which takes a minute to see.
    wanted = WANTED_OPTIONS | (set() if quick else {"quiet-stream"})
    assert wanted <= passed, f"{wanted - passed}\n{told}"
    counts = [
        sum(r["status"] == "pass" for r in report["rules"] if r["level"] == level)
        for level in ("required", "optional")
    ]
    return f"{counts[0]} required and {counts[1]} optional rules kept"


async def check_answers(server: LanguageServer) -> None:
    """Values of answer_tag and of the server's own reward, and configs that are refused."""
    own = server.language.own_reward
    async with open_channel(server.address) as channel:
        await _check_values(
            channel, "answer_tag", "", [(_columns("answer", c), t, e) for c, t, e in ANSWER_TAG]
        )
        await _check_values(
            channel,
            "answer_tag",
            '{"tag": "b"}',
            [(_columns("answer", pb.ColumnValue(int_value=3)), "<b>3</b>", 1.0)],
        )
        for config, reference, text, score in OWN[own]:
            columns = _columns(
                "reference", pb.ColumnValue(string_value=reference) if reference or own == "chrf" else None
            )
            await _check_values(channel, own, config, [(columns, text, score)])
        for reward in ("answer_tag", own):
            for config, named in BAD_CONFIGS[reward]:
                talk = Conversation(channel)
                try:
                    await talk.open(reward, **{reward: config})
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error
                    assert named in (error.details() or ""), error
                else:
                    raise AssertionError(f"{reward} took the config {config}")


async def _check_values(
    channel: grpc.aio.Channel,
    reward: str,
    config: str,
    cases: list[tuple[dict[str, pb.ColumnValue], str, Expected]],
) -> None:
    talk = Conversation(channel)
    await talk.open(reward, **{reward: config})
    groups = [
        pb.PromptGroup(
            group_id=f"g{i}", columns=columns, completions=[pb.Completion(completion_id=str(i), text=text)]
        )
        for i, (columns, text, _) in enumerate(cases)
    ]
    await talk.send(batch("a", *groups))
    await talk.close()
    codes, results = talk.codes("a"), talk.of("a")
    for i, (columns, text, expected) in enumerate(cases):
        outcome = codes[str(i)]
        if isinstance(expected, str):
            assert outcome == expected, (columns, text, results[str(i)])
        else:
            assert outcome == "score", (columns, text, results[str(i)])
            assert abs(results[str(i)].score.value - expected) < 1e-9, (
                columns,
                text,
                results[str(i)],
                expected,
            )
    done = talk.done["a"]
    assert done.scored_count + done.not_applicable_count + done.failed_count == len(cases)


def _columns(name: str, value: pb.ColumnValue | None) -> dict[str, pb.ColumnValue]:
    return {} if value is None else {name: value}


async def check_stop(server: LanguageServer) -> None:
    """On SIGTERM: draining is announced, what was accepted is answered, and the process ends."""
    async with open_channel(server.address) as channel:
        talk = Conversation(channel)
        await talk.open("answer_tag")
        await talk.send(batch("a", group(["<answer>12</answer>", "12"], answer=12)))
        await talk.until("a")
        server.tell_to_stop()
        while "draining" not in talk.frames:
            assert await talk.read() is not None, "the stream ended without draining"
        await talk.call.done_writing()
        try:
            while await talk.read() is not None:
                pass
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
        assert talk.values("a") == {"0": 1.0, "1": 0.0}
    # A JVM that was told to stop ends with 128 + 15, also where its shutdown hooks have run.
    assert await asyncio.to_thread(server.wait) in (0, 143)


async def singles_per_second(server: LanguageServer) -> float:
    """Completions sent one a batch, over one stream, as a trainer's crumbs come."""
    async with open_channel(server.address) as channel:
        talk = Conversation(channel)
        await talk.open("answer_tag")
        room = asyncio.Semaphore(_SINGLES_IN_FLIGHT)

        async def send() -> None:
            for i in range(SINGLES):
                await room.acquire()
                await talk.send(batch(str(i), group(["<answer>12</answer>"], answer=12)))

        begun = time.perf_counter()
        sender = asyncio.create_task(send())
        while len(talk.done) < SINGLES:
            frame = await talk.read()
            if frame is not None and frame.WhichOneof("frame") == "done":
                room.release()
        seconds = time.perf_counter() - begun
        await sender
        await talk.close()
        assert len(talk.results) == SINGLES
        assert all(result.score.value == 1.0 for result in talk.results)
        return SINGLES / seconds


@dataclass(frozen=True)
class Learned:
    """Mean reward of a job's first and last steps."""

    first: float
    last: float


def check_training(stack: Stack, server: LanguageServer, steps: int = STEPS) -> Learned:
    """A job with the server's answer_tag alone: every completion is scored, and the reward rises."""
    name = f"{server.language.name}-rewards"
    with stack.client() as client:
        registered = client.reward_servers.create(name, [server.address])
        assert registered.reachable, registered.unreachable_reason
        assert {reward.name for reward in registered.rewards} == {"answer_tag", server.language.own_reward}
        submitted = client.training_jobs.submit(
            {
                "base_model": "builtin:tiny",
                "dataset_id": "builtin:additions",
                "output_name": f"adder-{server.language.name}",
                "hyperparameters": {
                    **DEMO_HYPERPARAMETERS,
                    "learning_rate": _LEARNING_RATE,
                    "max_steps": steps,
                },
                "rewards": [{"server": name, "reward": "answer_tag"}],
            }
        )
        try:
            job = wait_for("the job", lambda: _over(client, submitted.id), TRAINING_SECONDS, pause=0.5)
        except AssertionError:
            client.training_jobs.cancel(submitted.id)
            raise
        assert job.status is JobStatus.COMPLETED, f"{job.error}\n{stack.logs()}"
        series = [v for _, v in client.training_jobs.metrics(job.id, max_points=5000).series(REWARD_MEAN)]
        completions = client.training_jobs.completions(job.id)
        unscored = [c for c in completions if c.reward not in (0.0, 1.0) or _statuses(c) != {"scored"}]
    assert len(series) == steps
    assert not unscored, f"{len(unscored)} completions were not scored, for example {unscored[0]}"
    learned = Learned(sum(series[:_ENDS]) / _ENDS, sum(series[-_ENDS:]) / _ENDS)
    assert learned.last > learned.first, series
    return learned


def _over(client: Client, job_id: str) -> models.TrainingJob | None:
    job = client.training_jobs.get(job_id)
    ends = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.PAUSED)
    return job if job.status in ends else None


def _statuses(completion: Any) -> set[str]:
    return {str(outcome.status) for outcome in completion.outcomes}
