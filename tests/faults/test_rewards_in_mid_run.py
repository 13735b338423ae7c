"""Rewards that fall ill in mid-run: the job waits, or pauses with the reason, and goes on; nothing faked."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from stack import Stack, wait_for

from plaudit.client import models
from plaudit.types.statuses import JobStatus

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

BATCH = 8
RETRY_SECONDS = 6.0
START_SECONDS = 150.0
"""For a run to load its libraries on a machine with other things to do."""
RUBRIC = [{"name": "right", "description": "Is the sum right?"}]


class Judge(ThreadingHTTPServer):
    """An endpoint of chat completions. `mood` says how it answers, `asked` counts calls by mood."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answers)
        self.mood = "good"
        self.asked: Counter[str] = Counter()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def die(self) -> None:
        """Closes its port."""
        self.shutdown()
        self.server_close()


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        judge = self.server
        assert isinstance(judge, Judge)
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        judge.asked[judge.mood] += 1
        verdict = {"rationale": "As it is.", "scores": {"right": len(asked) % 10 / 10}}
        body = json.dumps(
            {
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": json.dumps(verdict)},
                    }
                ],
                "usage": {"prompt_tokens": 100, "completion_tokens": 20},
            }
        ).encode()
        status = {"busy": 429, "broken": 500}.get(judge.mood, 200)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if status == 429:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if judge.mood == "half" else body)
        # A connection that is cut in the middle of an answer, and no other, is half an answer.
        self.close_connection = judge.mood == "half"

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def judge() -> Iterator[Judge]:
    serving = Judge()
    yield serving
    serving.server_close()


@pytest.fixture
def stack(tmp_path: Path, judge: Judge) -> Iterator[Stack]:
    url = f"http://127.0.0.1:{judge.server_port}/v1"
    (tmp_path / "plaudit.toml").write_text(
        f'[reward.judge.profiles.main]\nmodel = "stand-in"\nbase_url = "{url}"\n'
        "backoff_first_seconds = 0.05\nbackoff_most_seconds = 0.2\nbreaker_failures = 1000\n"
    )
    running = Stack(tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


JOB: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "adder",
    "preflight": "off",
    "hyperparameters": {
        "learning_rate": 1e-3,
        "max_steps": 1000,
        "rollouts_per_prompt": 4,
        "global_batch_size": BATCH,
        "max_response_length": 16,
        "lora_rank": 8,
        "checkpoint_every": 5,
    },
    "rewards": [
        {
            "server": "builtin",
            "name": "only",
            "reward": "frontier_judge",
            "config": {"profile": "main", "rubric": RUBRIC},
            "timeout_seconds": RETRY_SECONDS,
            "retry_seconds": RETRY_SECONDS,
        }
    ],
}


def wait_for_step(stack: Stack, job_id: str, step: int) -> None:
    with stack.client() as client:
        wait_for(
            f"step {step}",
            lambda: client.training_jobs.get(job_id).current_step >= step,
            seconds=START_SECONDS,
        )


def paused(stack: Stack, job_id: str) -> models.TrainingJob:
    with stack.client() as client:
        return wait_for(
            "the job to pause",
            lambda: (job := client.training_jobs.get(job_id)).status is JobStatus.PAUSED and job,
            seconds=90,
        )


def outcomes_by_step(stack: Stack, job_id: str) -> dict[int, Counter[str]]:
    with stack.client() as client:
        counts: dict[int, Counter[str]] = {}
        for completion in client.training_jobs.completions(job_id):
            counts.setdefault(completion.step, Counter()).update(o.status for o in completion.outcomes)
    return counts


def test_a_judge_that_falls_ill_and_a_reward_server_that_stays_away(stack: Stack, judge: Judge) -> None:
    with stack.client() as client:
        job_id = client.training_jobs.submit(JOB).id
        step = 2
        for mood in ("busy", "broken", "half"):
            wait_for_step(stack, job_id, step)
            judge.mood = mood
            wait_for(f"calls while it is {mood}", lambda mood=mood: judge.asked[mood] >= 3)
            judge.mood = "good"
            step = client.training_jobs.get(job_id).current_step + 2
        wait_for_step(stack, job_id, step)
        stack.reward.kill()
        job = paused(stack, job_id)
        assert job.status_detail is not None
        assert "could not be scored, more than max_unscored_fraction (0.5) allows" in job.status_detail
        assert f"could not be reached for {RETRY_SECONDS:g} s" in job.status_detail
        without_server = job.current_step
        stack.reward.start()
        client.training_jobs.resume(job_id)
        wait_for_step(stack, job_id, without_server + 2)
        judge.die()
        job = paused(stack, job_id)
        assert job.status_detail is not None
        assert "more than max_unscored_fraction (0.5) allows" in job.status_detail
        assert "only: unavailable (judge main (stand-in at " in job.status_detail
        without_judge = job.current_step
    counts = outcomes_by_step(stack, job_id)
    # What may pass was waited for: nothing was guessed, and nothing lost.
    assert without_server < without_judge
    # The step that found no server was done again when the job was resumed.
    assert all(counts[step] == {"scored": BATCH} for step in range(1, without_judge)), counts
    assert counts[without_judge]["unavailable"] > BATCH / 2, counts
    assert counts[without_judge].total() == BATCH
