"""Runs with real reward servers: late ones, broken ones, spent ones; pauses and what resumes them."""

import socket
import threading
import time

import pyarrow.parquet as pq
import pytest
from run_harness import RunHere, additions, binding, make_start, reward_server, write_dataset

from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.journal import CheckpointSaved, CompletionsWritten, LogLine, StepCompleted


def test_a_pause_and_a_second_attempt(tmp_path, odd_server, dataset):
    rewards = [(binding("sum_is_right"), odd_server), (binding("brevity", 0.1), odd_server)]
    first = RunHere(tmp_path, make_start(tmp_path, rewards, dataset=dataset, max_steps=5))
    told = first.control.report

    def pause_after_two(**report):
        if report["step"] == 2:
            first.control._obey({"command": "pause"})
        told(**report)

    first.control.report = pause_after_two
    end = first.go()
    assert (end.state, end.reason) == (RunState.PAUSED, "asked to pause")
    checkpoint = first.entries(CheckpointSaved)[-1]
    assert RunState.PAUSING in [s.state for s in first.states()]
    steps = len(first.entries(StepCompleted))
    assert checkpoint.step == steps < 5

    second = RunHere(
        tmp_path,
        make_start(tmp_path, rewards, dataset=dataset, max_steps=5, attempt=2, checkpoint_uri=checkpoint.uri),
    )
    assert second.go().state is RunState.COMPLETED
    assert [s.step for s in second.entries(StepCompleted)] == list(range(steps + 1, 6))
    assert second.entries(CheckpointSaved)[-1].uri == "jobs/job/attempt-2/checkpoint-000005"


def test_a_reward_server_that_is_not_up_yet_is_waited_for(tmp_path, dataset):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    run = RunHere(
        tmp_path, make_start(tmp_path, [(binding("brevity"), address)], dataset=dataset, max_steps=1)
    )
    waited = threading.Event()
    told = run.control.report

    def listen(**report):
        if "odd" in report["status_detail"]:
            waited.set()
        told(**report)

    run.control.report = listen
    ends = []
    training = threading.Thread(target=lambda: ends.append(run.go()))
    training.start()
    assert waited.wait(60), run.details
    with reward_server(address):
        training.join(60)
    assert [end.state for end in ends] == [RunState.COMPLETED]
    assert len(run.entries(StepCompleted)) == 1


def test_a_pause_before_there_is_anything_to_save(tmp_path, dataset, odd_server):
    run = RunHere(tmp_path, make_start(tmp_path, [(binding("brevity"), odd_server)], dataset=dataset))
    run.control._obey({"command": "pause"})
    end = run.go()
    assert end.state is RunState.PAUSED
    assert not run.entries(CheckpointSaved) and not run.entries(StepCompleted)


def test_a_cancel_ends_it_in_the_middle_of_a_wait(tmp_path, dataset, odd_server):
    run = RunHere(
        tmp_path, make_start(tmp_path, [(binding("slow"), odd_server)], dataset=dataset, max_steps=50)
    )
    told, cancelled_at = run.control.report, []

    def cancel_while_it_waits(**report):
        if "16 of 16 completions outstanding" in report["status_detail"]:
            cancelled_at.append(time.monotonic())
            run.control._obey({"command": "cancel", "grace_seconds": 30.0})
        told(**report)

    run.control.report = cancel_while_it_waits
    assert run.go().state is RunState.CANCELLED
    assert time.monotonic() - cancelled_at[0] < 15  # the scores would have taken longer
    assert [s.state for s in run.states()][-2:] == [RunState.CANCELLING, RunState.CANCELLED]
    assert len(run.metrics()) == 1


def test_a_spent_budget_pauses_the_run_with_the_reason(tmp_path, dataset, odd_server):
    run = RunHere(tmp_path, make_start(tmp_path, [(binding("dear"), odd_server)], dataset=dataset))
    end = run.go()
    assert end.state is RunState.PAUSED
    assert "budget of 1 EUR is spent" in end.reason
    # Step 2, whose completions found the budget spent, is done again by who raises it and resumes.
    assert [saved.step for saved in run.entries(CheckpointSaved)] == [1]
    assert run.metrics()[1]["step_skipped"] == 1.0


def test_a_broken_reward_pauses_the_run_and_moves_nothing(tmp_path, dataset, odd_server):
    rewards = [(binding("brevity", 0.7), odd_server), (binding("broken", 0.3), odd_server)]
    run = RunHere(tmp_path, make_start(tmp_path, rewards, dataset=dataset))
    end = run.go()
    assert end.state is RunState.PAUSED
    assert end.reason.startswith("16 of the 16 completions of step 1 could not be scored")
    (metrics,) = run.metrics()
    assert metrics["reward/broken/failed_fraction"] == 1.0
    assert metrics["reward/brevity/failed_fraction"] == 0.0
    assert metrics["step_skipped"] == 1.0
    assert run.entries(CheckpointSaved) == []


def test_a_reward_of_nan_is_a_failure(tmp_path, dataset, odd_server):
    start = make_start(tmp_path, [(binding("nan_for_odd"), odd_server)], dataset=dataset, max_steps=1)
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED
    (metrics,) = run.metrics()
    assert metrics["reward/nan_for_odd/failed_fraction"] == 0.5
    assert metrics["reward_mean"] == 1.0  # of 0 and 2
    assert metrics["unscored_fraction"] == 0.5


def test_a_reward_that_applies_to_some(tmp_path, dataset, odd_server):
    start = make_start(
        tmp_path,
        [(binding("even_only"), odd_server)],
        dataset=dataset,
        max_steps=1,
        log_completions=False,
    )
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED
    (metrics,) = run.metrics()
    assert metrics["not_applicable_fraction"] == 0.5
    assert metrics["unscored_fraction"] == 0.0
    assert metrics["reward/even_only/mean"] == 1.0
    warnings = [line.message for line in run.entries(LogLine) if line.level == "warning"]
    assert any("even_only applies to a part of a group only" in message for message in warnings)
    assert run.entries(CompletionsWritten) == []
    assert not (tmp_path / "artifacts" / "jobs" / "job" / "attempt-1" / "completions").exists()


def test_the_rest_of_the_dataset_is_not_dropped(tmp_path, odd_server):
    # 10 prompts, 4 a step: 3 steps, of which the last sees 2 prompts again.
    dataset = write_dataset(tmp_path / "artifacts", additions(10))
    start = make_start(tmp_path, [(binding("brevity"), odd_server)], dataset=dataset, max_steps=None)
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED
    assert len(run.metrics()) == 3
    assert any("filled with 2 prompts" in line.message for line in run.entries(LogLine))


def test_longer_prompts_are_cut_and_counted(tmp_path, odd_server):
    rows = additions(8)
    for prompt, _ in rows[:3]:
        prompt[0]["content"] = "Once upon a time, " * 20 + prompt[0]["content"]
    dataset = write_dataset(tmp_path / "artifacts", rows)
    start = make_start(
        tmp_path,
        [(binding("brevity"), odd_server)],
        dataset=dataset,
        max_steps=2,
        max_prompt_length=40,
    )
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED
    # Two steps of four prompts see all eight.
    assert sum(m["prompts_truncated"] for m in run.metrics()) == 3.0
    assert any("3 of 8 prompts were longer than max_prompt_length" in e.message for e in run.entries(LogLine))
    texts = {
        row["prompt_text"]
        for written in run.entries(CompletionsWritten)
        for row in pq.read_table(tmp_path / "artifacts" / written.uri).to_pylist()
    }
    assert len(texts) == 8
    assert all(any(prompt[0]["content"][-12:] in text for text in texts) for prompt, _ in rows)
    assert all(len(text) < 200 for text in texts)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"base_model": "/nowhere/at/all"}, ErrorCode.MODEL_ERROR, "/nowhere/at/all"),
        ({"max_prompt_length": 3}, ErrorCode.CONFIG_ERROR, "hyperparameters.max_prompt_length: 3"),
        (
            {"global_batch_size": 164},
            ErrorCode.CONFIG_ERROR,
            "takes 41 prompts a step (4 completions each), but the dataset has 40; 160 would work",
        ),
        ({"checkpoint_uri": "jobs/job/attempt-9/checkpoint-000004"}, ErrorCode.MODEL_ERROR, "no checkpoint"),
    ],
)
def test_what_cannot_be_trained_fails_with_the_way_out(tmp_path, dataset, odd_server, change, code, words):
    run = RunHere(
        tmp_path, make_start(tmp_path, [(binding("brevity"), odd_server)], dataset=dataset, **change)
    )
    end = run.go()
    assert end.state is RunState.FAILED
    assert end.error.code is code
    assert words in end.error.message
    assert "Traceback" not in end.error.message


def test_a_dataset_that_changed_fails(tmp_path, dataset, odd_server):
    path = tmp_path / "artifacts" / dataset.uri
    path.write_bytes(path.read_bytes() + b"x")
    run = RunHere(tmp_path, make_start(tmp_path, [(binding("brevity"), odd_server)], dataset=dataset))
    assert run.go().error.code is ErrorCode.DATASET_ERROR


def test_a_reward_that_the_server_does_not_have_fails(tmp_path, dataset, odd_server):
    run = RunHere(tmp_path, make_start(tmp_path, [(binding("no_such"), odd_server)], dataset=dataset))
    end = run.go()
    assert end.error.code in (ErrorCode.CONFIG_ERROR, ErrorCode.REWARD_UNAVAILABLE)
    assert "no_such" in end.error.message
