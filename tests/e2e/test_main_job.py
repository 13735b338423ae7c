"""The main job through every layer: submit, watch, read back, on real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from stack import Stack, wait_for

from plaudit.client import models
from plaudit.types.metrics import HEADLINE_METRICS
from plaudit.types.statuses import JobStatus

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def small_job(steps: int = 4, **changes: Any) -> dict[str, Any]:
    return {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "hyperparameters": {
            "learning_rate": 1e-3,
            "max_steps": steps,
            "rollouts_per_prompt": 4,
            "global_batch_size": 16,
            "max_response_length": 16,
            "lora_rank": 8,
        },
        "rewards": [{"server": "builtin", "reward": "exact_answer"}],
        **changes,
    }


def test_a_job_runs_to_its_end_and_every_view_of_it_agrees(stack: Stack) -> None:
    with stack.client() as client:
        job = client.training_jobs.submit(small_job())
        events = list(client.training_jobs.watch(job.id))
        done = client.training_jobs.get(job.id)
        assert done.status is JobStatus.COMPLETED, stack.logs()
        assert (done.current_step, done.total_steps, done.attempt, done.error) == (4, 4, 1, None)

        statuses = [e.body.status for e in events if isinstance(e.body, models.StatusChanged)]
        order = list(dict.fromkeys(statuses))
        assert order[0] is JobStatus.QUEUED
        assert order[-1] is JobStatus.COMPLETED
        assert order.index(JobStatus.CONFIGURING) < order.index(JobStatus.RUNNING)

        steps = [e.body for e in events if isinstance(e.body, models.StepMetrics)]
        assert [s.step for s in steps] == [1, 2, 3, 4]
        series = client.training_jobs.metrics(job.id)
        assert series.latest_step == 4
        assert [dict(row.values) for row in series.metrics] == [dict(s.values) for s in steps]
        assert dict(done.metrics) == dict(steps[-1].values)
        assert set(HEADLINE_METRICS) <= set(series.available_keys)
        assert "reward/exact_answer/failed_fraction" in series.available_keys

        completions = list(client.training_jobs.completions(job.id))
        assert len({(c.step, c.completion_id) for c in completions}) == len(completions) == 4 * 16
        for step in steps:
            of_step = [c for c in completions if c.step == step.step]
            assert len(of_step) == 16
            rewards = [c.reward for c in of_step if c.reward is not None]
            assert step.values["reward_mean"] == pytest.approx(sum(rewards) / len(rewards))
            # The reward worked out here, from what the model read and wrote.
            for c in of_step:
                left, right = (int(w) for w in c.prompt_text.split("What is ")[1].split("?")[0].split(" + "))
                text = c.completion_text
                answer = text.rsplit("<answer>", 1)[-1].split("</answer>")[0] if "</answer>" in text else ""
                if "<answer>" in text and text.rfind("<answer>") < text.rfind("</answer>"):
                    right_answer = answer.strip().isdecimal() and int(answer) == left + right
                    assert c.reward == float(right_answer), text
                else:
                    assert c.reward == 0.0, text

        answer = httpx2.get(
            f"{stack.http_url}/v1/training_jobs/{job.id}/metrics?keys=loss,kl_div,reward_mean"
        )
        rest = answer.json()
        assert [row["step"] for row in rest["metrics"]] == [1, 2, 3, 4]
        for row, step in zip(rest["metrics"], steps, strict=True):
            assert row["values"] == {k: step.values[k] for k in ("loss", "kl_div", "reward_mean")}
        shown = httpx2.get(f"{stack.http_url}/v1/training_jobs/{job.id}").json()
        assert (shown["status"], shown["current_step"], shown["object"]) == ("completed", 4, "training_job")

        # A watch from the middle gives exactly the rest.
        half = events[len(events) // 2]
        rest_events = list(client.training_jobs.watch(job.id, after_cursor=half.cursor))
        assert [e.cursor for e in rest_events] == [e.cursor for e in events[len(events) // 2 + 1 :]]


def test_a_request_id_makes_a_repetition_return_the_same_job(stack: Stack) -> None:
    with stack.client() as client:
        first = client.training_jobs.submit(small_job(1), request_id="3e1b5c56-0001-4c1e-9d2a-000000000001")
        again = client.training_jobs.submit(small_job(1), request_id="3e1b5c56-0001-4c1e-9d2a-000000000001")
        assert first.id == again.id
        client.training_jobs.wait(first.id)


def test_pause_resume_and_cancel_by_the_command_line(stack: Stack) -> None:
    environment = {**os.environ, "PLAUDIT_ADDRESS": stack.grpc_address}

    def plaudit(*arguments: str, status: int = 0) -> dict[str, Any]:
        done = subprocess.run(
            [str(BIN / "plaudit"), *arguments, "--json"],
            env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout) if done.stdout else {}

    with stack.client() as client:
        job_id = client.training_jobs.submit(small_job(400)).id
        wait_for("three steps", lambda: client.training_jobs.get(job_id).current_step >= 3)
        plaudit("job", "pause", job_id)
        wait_for("the pause", lambda: client.training_jobs.get(job_id).status is JobStatus.PAUSED)
        paused = plaudit("job", "get", job_id)
        assert paused["latest_checkpoint_id"] == f"{job_id}@{paused['current_step']}"
        assert plaudit("job", "resume", job_id)["status"] == "queued"
        wait_for(
            "a later step", lambda: client.training_jobs.get(job_id).current_step > paused["current_step"]
        )
        assert client.training_jobs.get(job_id).attempt == 2
        plaudit("job", "cancel", job_id)
        wait_for("the cancel", lambda: client.training_jobs.get(job_id).status is JobStatus.CANCELLED)
        steps = [row.step for row in client.training_jobs.metrics(job_id, max_points=5000).metrics]
        assert steps == list(range(1, steps[-1] + 1))
        plaudit("job", "resume", job_id, status=1)
        assert plaudit("job", "get", "job_nope", status=3) == {}


def test_a_reward_server_of_forty_lines_without_plaudit_scores_a_job(stack: Stack, tmp_path: Path) -> None:
    """Made from the proto file and grpcio alone, outside the repository; one result a frame, in reverse."""
    source = ROOT / "examples/python/minimal_reward_server.py"
    lines = source.read_text().splitlines()
    assert len(lines) <= 40
    assert not any("plaudit" in line and "import" in line for line in lines)
    shutil.copy(source, tmp_path)
    shutil.copy(ROOT / "protos/plaudit/reward/v1/reward_service.proto", tmp_path)
    generate = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=."]
    subprocess.run([*generate, "reward_service.proto"], cwd=tmp_path, check=True, timeout=60)
    server = subprocess.Popen(
        [sys.executable, source.name, "127.0.0.1:0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().split()[-1].rsplit(":", 1)[-1])
        with stack.client() as client:
            registered = client.reward_servers.create("forty-lines", [f"127.0.0.1:{port}"])
            assert registered.reachable
            reward = registered.rewards[0].name
            rewards = [
                {"server": "builtin", "reward": "exact_answer", "weight": 0.7},
                {"server": "forty-lines", "reward": reward, "name": "mine", "weight": 0.3},
            ]
            job = client.training_jobs.wait(client.training_jobs.submit(small_job(3, rewards=rewards)).id)
            assert job.status is JobStatus.COMPLETED, stack.logs()
            completions = list(client.training_jobs.completions(job.id))
            assert len(completions) == 48
            for c in completions:
                values = {o.name: o.value for o in c.outcomes}
                assert set(values) == {"exact_answer", "mine"}
                assert values["exact_answer"] is not None
                assert values["mine"] is not None
                assert c.reward == pytest.approx(0.7 * values["exact_answer"] + 0.3 * values["mine"])
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
def test_the_demo_ends_with_one_json_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = subprocess.run(
        [str(BIN / "plaudit"), "demo", "--steps", "12", "--seed", "7"],
        capture_output=True, text=True, timeout=110, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert demo.returncode == 0, demo.stdout + demo.stderr
    result = json.loads(demo.stdout.splitlines()[-1])
    assert set(result) == {
        "job_id", "status", "steps", "reward_mean_first10", "reward_mean_last10", "train_seconds",
    }  # fmt: skip
    assert (result["status"], result["steps"]) == ("completed", 12)
    assert "REST http://127.0.0.1:" in demo.stdout
    assert "gRPC 127.0.0.1:" in demo.stdout
    assert list(tmp_path.glob("plaudit-*")) == []
    assert not left_over(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_demo_is_ended(tmp_path: Path, number: int) -> None:
    demo = subprocess.Popen(
        [str(BIN / "plaudit"), "demo", "--steps", "2000"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert demo.stdout is not None
    seen = next(line for line in demo.stdout if line.startswith("step "))
    assert seen.startswith("step 1/")
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) >= 4
    demo.send_signal(number)
    demo.wait(30)
    began = time.monotonic()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == [], f"{alive} after {time.monotonic() - began:.1f} s"
    if number == signal.SIGINT:
        assert demo.returncode == 130


def left_over(folder: Path) -> list[psutil.Process]:
    """Processes that were started with `folder` in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in value for value in process.environ().values()):
                found.append(process)
        except psutil.Error:
            continue
    return [p for p in found if p.pid != os.getpid()]


def test_metrics_are_gapless_pairs(stack: Stack) -> None:
    """Events of all jobs carry cursors that never repeat and never go back."""
    with stack.client() as client:
        for job in client.training_jobs.list():
            numbers = [int(e.cursor.rsplit("-", 1)[1]) for e in client.training_jobs.watch(job.id)]
            assert all(a < b for a, b in pairwise(numbers))
