"""kill -9 of each service in mid-run: nothing is lost or doubled, and the job says what it waits for."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from stack import Stack, wait_for

from plaudit.client import models
from plaudit.types.statuses import JobStatus

pytestmark = pytest.mark.faults

AWAY_SECONDS = 5.0
BATCH = 16


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for all: whatever is killed is back, over the same data, when the next test begins."""
    running = Stack(tmp_path_factory.mktemp("killed"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def all_are_there(stack: Stack) -> None:
    """Also where the test before failed in the middle."""
    for service in (stack.reward, stack.trainer, stack.gateway):
        if service.process is not None and service.process.poll() is not None:
            service.start()


def job_spec(steps: int) -> dict[str, Any]:
    return {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "hyperparameters": {
            "learning_rate": 1e-3,
            "max_steps": steps,
            "rollouts_per_prompt": 4,
            "global_batch_size": BATCH,
            "max_response_length": 16,
            "lora_rank": 8,
            "checkpoint_every": 5,
        },
        "rewards": [
            {"server": "builtin", "reward": "exact_answer", "weight": 0.7},
            {"server": "builtin", "reward": "length_penalty", "weight": 0.3,
             "config": {"soft_limit": 8, "hard_limit": 16}},
        ],
    }  # fmt: skip


def assert_each_step_once(stack: Stack, job_id: str, steps: int) -> None:
    """Every step has one row of metrics, and every completion of it one outcome per reward."""
    with stack.client() as client:
        series = client.training_jobs.metrics(job_id, max_points=5000)
        assert [row.step for row in series.metrics] == list(range(1, steps + 1))
        completions = list(client.training_jobs.completions(job_id))
    per_step = Counter(c.step for c in completions)
    assert per_step == dict.fromkeys(range(1, steps + 1), BATCH)
    assert len({(c.step, c.completion_id) for c in completions}) == steps * BATCH
    for completion in completions:
        assert [o.name for o in completion.outcomes] == ["exact_answer", "length_penalty"]
        assert all(o.status == "scored" for o in completion.outcomes), completion


def wait_for_step(stack: Stack, job_id: str, step: int) -> None:
    with stack.client() as client:
        wait_for(f"step {step}", lambda: client.training_jobs.get(job_id).current_step >= step)


def finished(stack: Stack, job_id: str) -> models.TrainingJob:
    with stack.client() as client:
        return wait_for(
            "the end of the job",
            lambda: (job := client.training_jobs.get(job_id)).status.is_terminal and job,
            seconds=90,
        )


def test_a_killed_reward_server_costs_a_wait_and_nothing_else(stack: Stack) -> None:
    steps = 20
    with stack.client() as client:
        job_id = client.training_jobs.submit(job_spec(steps)).id
        wait_for_step(stack, job_id, 5)
        stack.reward.kill()
        killed = time.monotonic()
        details = set()
        while time.monotonic() - killed < AWAY_SECONDS:
            job = client.training_jobs.get(job_id)
            assert job.status is JobStatus.RUNNING
            details.add(job.status_detail)
            time.sleep(0.1)
        assert any("builtin" in detail for detail in details), details
        stack.reward.start()
        job = finished(stack, job_id)
    assert job.status is JobStatus.COMPLETED, stack.logs()
    assert (job.attempt, job.status_detail) == (1, "")
    assert_each_step_once(stack, job_id, steps)


def test_a_killed_gateway_does_not_stop_the_run_and_stores_each_step_once(stack: Stack) -> None:
    steps = 150  # more than can be done while the gateway is away
    with stack.client() as client:
        job_id = client.training_jobs.submit(job_spec(steps)).id
        seen: list[models.JobEvent] = []
        watcher = threading.Thread(
            target=lambda: seen.extend(client.training_jobs.watch(job_id)), daemon=True
        )
        watcher.start()
        wait_for_step(stack, job_id, 5)
        runs = stack.trainer.descendants()
        stack.gateway.kill()
        time.sleep(AWAY_SECONDS)
        assert [p.pid for p in stack.trainer.descendants()] == [p.pid for p in runs]
        stack.gateway.start()
        job = finished(stack, job_id)
        watcher.join(30)
        assert not watcher.is_alive()
    assert job.status is JobStatus.COMPLETED, stack.logs()
    assert job.attempt == 1
    assert_each_step_once(stack, job_id, steps)
    watched = [e.body.step for e in seen if isinstance(e.body, models.StepMetrics)]
    assert watched == list(range(1, steps + 1))
    told = [e.cursor for e in seen if not isinstance(e.body, models.Bookmark)]
    assert len(set(told)) == len(told)


def test_a_killed_trainer_leaves_no_process_and_the_job_goes_on_from_its_checkpoint(stack: Stack) -> None:
    steps = 25
    with stack.client() as client:
        job_id = client.training_jobs.submit(job_spec(steps)).id
        wait_for("a checkpoint", lambda: client.training_jobs.get(job_id).latest_checkpoint_id or None)
        wait_for_step(stack, job_id, 8)
        runs = stack.trainer.descendants()
        assert runs
        stack.trainer.kill()
        _, alive = psutil.wait_procs(runs, timeout=5)
        assert alive == []
        job = client.training_jobs.get(job_id)
        from_step = int(job.latest_checkpoint_id.rsplit("@", 1)[1])
        time.sleep(max(0.0, AWAY_SECONDS - 2))
        detail = client.training_jobs.get(job_id).status_detail
        assert stack.trainer.addresses["address"] in detail, detail
        stack.trainer.start()
        job = finished(stack, job_id)
        events = list(client.training_jobs.watch(job_id))
    assert job.status is JobStatus.COMPLETED, stack.logs()
    assert job.attempt == 2
    starts = [e.body for e in events if isinstance(e.body, models.AttemptStarted)]
    assert [s.attempt for s in starts] == [1, 2]
    assert starts[1].from_step >= from_step
    assert starts[1].from_step % 5 == 0
    assert_each_step_once(stack, job_id, steps)


def test_a_killed_run_process_is_told_and_tried_again(stack: Stack) -> None:
    with stack.client() as client:
        job_id = client.training_jobs.submit(job_spec(15)).id
        wait_for_step(stack, job_id, 6)
        for process in stack.trainer.descendants():
            process.kill()
        job = finished(stack, job_id)
        assert job.status is JobStatus.COMPLETED, stack.logs()
        assert job.attempt == 2
        assert_each_step_once(stack, job_id, 15)


def test_cancel_leaves_no_process_and_a_cancelled_job(stack: Stack) -> None:
    with stack.client() as client:
        job_id = client.training_jobs.submit(job_spec(500)).id
        wait_for_step(stack, job_id, 2)
        runs = stack.trainer.descendants()
        client.training_jobs.cancel(job_id)
        assert finished(stack, job_id).status is JobStatus.CANCELLED
        _, alive = psutil.wait_procs(runs, timeout=5)
        assert alive == []


def test_everything_killed_at_random_and_the_job_still_ends_once(stack: Stack) -> None:
    """Ten seconds of kills at random in the short form, two minutes in the long one."""
    import random

    long_form = os.environ.get("PLAUDIT_FAULTS") == "long"
    rng = random.Random(20_26)
    steps = 400 if long_form else 40
    with stack.client() as client:
        job_id = client.training_jobs.submit(job_spec(steps)).id
        wait_for_step(stack, job_id, 6)
        until = time.monotonic() + (120 if long_form else 10)
        trainer_kills = 0
        while time.monotonic() < until:
            services = [stack.reward, stack.gateway]
            # A job is tried three times without a new checkpoint: give it the time to save one.
            if trainer_kills < 1 or long_form:
                services.append(stack.trainer)
            victim = rng.choice(services)
            victim.kill()
            time.sleep(rng.uniform(0.1, 1.0))
            victim.start()
            if victim is stack.trainer:
                trainer_kills += 1
                before = client.training_jobs.get(job_id).latest_checkpoint_id
                wait_for(
                    "a new checkpoint",
                    lambda before=before: (
                        (job := client.training_jobs.get(job_id)).latest_checkpoint_id != before
                        or job.status.is_terminal
                    ),
                )
            time.sleep(rng.uniform(0.2, 1.5))
        job = finished(stack, job_id)
    assert job.status is JobStatus.COMPLETED, stack.logs()
    assert_each_step_once(stack, job_id, steps)
