"""Runs over gRPC: start, watch, pause, cancel, delete, and every refusal."""

import asyncio
import json
import math
import os
import re
import signal

import grpc
import grpc.aio
import pytest
from google.protobuf import duration_pb2
from trainer_process import PATIENCE, InnerTrainer, Trainer, spec, start_request

from plaudit.errors import FailedPreconditionError, InvalidArgumentError, PlauditError
from plaudit.rpc import error_from_rpc
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from trainer_service import progress, runs
from trainer_service.devices import find_devices


async def refusal(call: object) -> PlauditError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return error_from_rpc(caught.value)


async def reason_of(call: object) -> str:
    return (await refusal(call)).reason


def pause(trainer: Trainer, run_id: str = "run_1") -> object:
    return trainer.stub.PauseRun(pb.PauseRunRequest(run_id=run_id), timeout=PATIENCE)


def cancel(trainer: Trainer, run_id: str = "run_1", grace: float | None = None) -> object:
    request = pb.CancelRunRequest(run_id=run_id)
    if grace is not None:
        request.grace.CopyFrom(duration_pb2.Duration(nanos=round(grace % 1 * 1e9), seconds=int(grace)))
    return trainer.stub.CancelRun(request, timeout=PATIENCE)


def delete(trainer: Trainer, run_id: str = "run_1") -> object:
    return trainer.stub.DeleteRun(pb.DeleteRunRequest(run_id=run_id), timeout=PATIENCE)


async def test_a_run_from_start_to_deletion(trainer: InnerTrainer) -> None:
    run = await trainer.start_run(steps=3)
    assert (run.run_id, run.job_id, run.attempt) == ("run_1", "job_1", 1)
    assert run.state in (pb.RUN_STATE_STARTING, pb.RUN_STATE_RUNNING)
    events = await trainer.events()
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds == [
        *["state_changed"] * 2,
        *["step_completed"] * 3,
        *("checkpoint_removed", "checkpoint_saved", "completions_written", "log_line", "state_changed"),
    ]
    assert [event.sequence for event in events] == list(range(1, 11))
    assert [e.state_changed.state for e in events if e.HasField("state_changed")] == [
        pb.RUN_STATE_STARTING,
        pb.RUN_STATE_RUNNING,
        pb.RUN_STATE_COMPLETED,
    ]
    steps = [e.step_completed for e in events if e.HasField("step_completed")]
    assert [(s.step, s.total_steps, s.metrics["reward_mean"]) for s in steps] == [
        (n, 3, n / 7) for n in (1, 2, 3)
    ]
    assert all(math.isnan(s.metrics["loss"]) for s in steps)
    saved, written = events[6].checkpoint_saved, events[7].completions_written
    assert (saved.step, saved.uri, saved.size_bytes, saved.sha256) == (
        *(3, "jobs/j/attempt-1/checkpoint-000003", 1234, "ab"),
    )
    assert (written.step, written.row_count, written.size_bytes, written.sha256) == (3, 8, 100, "cd")
    assert json.loads(events[8].log_line.record_json) == {
        "level": "warning",
        "message": "slow",
        "seconds": 1.5,
    }
    run = await trainer.get()
    assert (run.state, run.step, run.total_steps, run.last_sequence) == (pb.RUN_STATE_COMPLETED, 3, 3, 10)
    assert not run.HasField("error")
    listed = (await trainer.stub.ListRuns(pb.ListRunsRequest())).runs
    assert list(listed) == [run]

    await delete(trainer)  # type: ignore[misc]
    await delete(trainer)  # type: ignore[misc]
    assert not trainer.run_dir("run_1").exists()
    assert await reason_of(trainer.stub.GetRun(pb.GetRunRequest(run_id="run_1"))) == "NOT_FOUND"
    assert len((await trainer.stub.ListRuns(pb.ListRunsRequest())).runs) == 0
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await trainer.events()
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_the_trainer_describes_itself(trainer: InnerTrainer) -> None:
    info = await trainer.stub.GetTrainerInfo(pb.GetTrainerInfoRequest())
    assert info.trainer_version == "0.1.0"
    assert info.max_concurrent_runs == 1
    assert info.quantization
    assert len(info.devices) == len(await find_devices())
    await trainer.stop()
    await trainer.start(runs=3)
    again = await trainer.stub.GetTrainerInfo(pb.GetTrainerInfoRequest())
    assert again.trainer_id == info.trainer_id != ""
    assert again.max_concurrent_runs == 3


async def test_starting_twice_is_starting_once(trainer: InnerTrainer) -> None:
    request = start_request(steps=1_000, step_seconds=0.05)
    answers = await asyncio.gather(*(trainer.stub.StartRun(request) for _ in range(5)))
    assert {answer.run.run_id for answer in answers} == {"run_1"}
    await trainer.until(lambda run: run.state == pb.RUN_STATE_RUNNING)
    assert len(trainer.processes("run_1")) == 2  # the run and its keeper
    for changed in (
        start_request(steps=2_000, step_seconds=0.05),
        start_request(attempt=2, steps=1_000, step_seconds=0.05),
        start_request(job_id="job_2", steps=1_000, step_seconds=0.05),
    ):
        assert await reason_of(trainer.stub.StartRun(changed)) == "RUN_ID_REUSED"


async def test_what_a_run_waits_for_is_shown_without_a_journal_entry(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=100, step_seconds=0.1, detail="reward server judge: 3 of 64 outstanding")
    run = await trainer.until(lambda run: run.status_detail != "")
    assert run.status_detail == "reward server judge: 3 of 64 outstanding"
    await cancel(trainer)  # type: ignore[misc]
    run = await trainer.until(lambda run: run.state == pb.RUN_STATE_CANCELLED)
    assert run.status_detail == ""


async def test_a_run_whose_process_is_stopped_says_since_when(
    trainer: InnerTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LEAST_SECONDS", 1.0)
    await trainer.start_run(steps=100_000, step_seconds=0.02)
    run = await trainer.until(lambda run: run.step >= 5)
    assert run.status_detail == ""
    processes = trainer.processes("run_1")
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    run = await trainer.until(lambda run: run.status_detail != "")
    assert re.match(r"no step since \d\d:\d\d:\d\d UTC \(\d+ s; a step took ", run.status_detail)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    await trainer.until(lambda run: run.status_detail == "")
    await cancel(trainer, grace=0.0)  # type: ignore[misc]


async def test_a_run_that_sends_no_reports_is_followed_by_its_journal(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=2, silent=True)
    events = await trainer.events()
    assert events[-1].state_changed.state == pb.RUN_STATE_COMPLETED
    assert (await trainer.get()).step == 2


async def test_pausing(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05)
    await trainer.until(lambda run: run.step >= 2)
    answer = await pause(trainer)  # type: ignore[misc]
    assert answer.run.state in (pb.RUN_STATE_PAUSING, pb.RUN_STATE_PAUSED)
    await pause(trainer)  # type: ignore[misc]
    events = await trainer.events()
    assert [e.state_changed.state for e in events if e.HasField("state_changed")] == [
        pb.RUN_STATE_STARTING,
        pb.RUN_STATE_RUNNING,
        pb.RUN_STATE_PAUSING,
        pb.RUN_STATE_PAUSED,
    ]
    assert events[-1].state_changed.reason == "asked to"
    assert events[-2].checkpoint_saved.step == (await trainer.get()).step
    # A repeated request, as after a lost answer, finds what it asked for.
    assert (await pause(trainer)).run.state == pb.RUN_STATE_PAUSED  # type: ignore[misc]
    # Its place is free again.
    await trainer.until_gone()
    await trainer.start_run_once_free("run_2", attempt=2, steps=1)
    assert (await trainer.events("run_2"))[-1].state_changed.state == pb.RUN_STATE_COMPLETED


async def test_pausing_what_cannot_be_paused(trainer: InnerTrainer) -> None:
    assert await reason_of(pause(trainer, "run_0")) == "NOT_FOUND"
    await trainer.start_run(steps=1)
    await trainer.events()
    error = await refusal(pause(trainer))
    assert isinstance(error, FailedPreconditionError)
    assert (error.reason, error.message) == (
        "RUN_NOT_PAUSABLE",
        "run run_1 is completed; only a run that is starting or running can be paused",
    )
    await trainer.until_gone()
    await trainer.start_run_once_free("run_2", job_id="job_2", steps=10_000, step_seconds=0.05, deaf=True)
    await cancel(trainer, "run_2", grace=60)  # type: ignore[misc]
    assert (await trainer.get("run_2")).state == pb.RUN_STATE_CANCELLING
    assert await reason_of(pause(trainer, "run_2")) == "RUN_NOT_PAUSABLE"


async def test_cancelling_at_once_kills(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=True, children=True)
    await trainer.until(lambda run: run.step >= 1)
    assert len(trainer.processes("run_1")) == 4
    answer = await cancel(trainer)  # type: ignore[misc]
    assert answer.run.state == pb.RUN_STATE_CANCELLING
    events = await trainer.events()
    assert events[-1].state_changed.state == pb.RUN_STATE_CANCELLED
    assert trainer.processes("run_1") == []
    assert (await cancel(trainer)).run.state == pb.RUN_STATE_CANCELLED  # type: ignore[misc]


async def test_cancelling_with_grace_lets_the_run_end_itself(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05)
    await trainer.until(lambda run: run.step >= 1)
    await cancel(trainer, grace=60)  # type: ignore[misc]
    run = await trainer.until(lambda run: run.state == pb.RUN_STATE_CANCELLED)
    entries = await trainer.events()
    assert entries[-1].sequence == run.last_sequence
    assert "about to end" not in (trainer.run_dir("run_1") / "output.log").read_text()


async def test_a_run_that_ignores_a_cancel_is_killed_after_the_grace(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=True)
    await trainer.until(lambda run: run.step >= 1)
    await cancel(trainer, grace=0.3)  # type: ignore[misc]
    await trainer.until(lambda run: run.state == pb.RUN_STATE_CANCELLED)
    assert trainer.processes("run_1") == []


async def test_a_second_cancel_may_shorten_the_grace(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=True)
    await cancel(trainer, grace=3_000)  # type: ignore[misc]
    await cancel(trainer, grace=2_000)  # type: ignore[misc]
    await cancel(trainer)  # type: ignore[misc]
    await trainer.until(lambda run: run.state == pb.RUN_STATE_CANCELLED)
    assert trainer.processes("run_1") == []


async def test_cancelling_a_run_that_is_over_changes_nothing(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=1)
    before = await trainer.events()
    assert (await cancel(trainer)).run.state == pb.RUN_STATE_COMPLETED  # type: ignore[misc]
    assert await trainer.events() == before


async def test_a_cancel_that_comes_before_the_start(trainer: InnerTrainer) -> None:
    answer = await cancel(trainer)  # type: ignore[misc]
    assert (answer.run.run_id, answer.run.state) == ("run_1", pb.RUN_STATE_CANCELLED)
    assert await reason_of(trainer.stub.StartRun(start_request())) == "RUN_CANCELLED"
    await trainer.stop()
    await trainer.start()
    assert await reason_of(trainer.stub.StartRun(start_request())) == "RUN_CANCELLED"
    assert len((await trainer.stub.ListRuns(pb.ListRunsRequest())).runs) == 0
    assert list((trainer.data_dir / "trainer" / "runs").iterdir()) == []
    # The job itself is not banned.
    await trainer.start_run("run_2", attempt=2, steps=1)


async def test_stale_attempts_start_nothing_even_after_deletion_and_restart(trainer: InnerTrainer) -> None:
    await trainer.start_run("run_2", attempt=2, steps=1)
    await trainer.events("run_2")
    stale = [start_request("run_1", attempt=1), start_request("run_3", attempt=2)]
    error = await refusal(trainer.stub.StartRun(stale[0]))
    assert (error.reason, error.message) == (
        "STALE_ATTEMPT",
        "attempt 1 of job job_1 is stale: attempt 2 was started here",
    )
    assert await reason_of(trainer.stub.StartRun(stale[1])) == "STALE_ATTEMPT"
    await delete(trainer, "run_2")  # type: ignore[misc]
    await trainer.stop()
    await trainer.start()
    for request in (*stale, start_request("run_2", attempt=2, steps=1)):
        assert await reason_of(trainer.stub.StartRun(request)) == "STALE_ATTEMPT"
    await trainer.start_run("run_3", attempt=3, steps=1)


async def test_a_higher_attempt_ends_the_lower_one(trainer: InnerTrainer) -> None:
    await trainer.start_run("run_1", steps=10_000, step_seconds=0.05, deaf=True, children=True)
    await trainer.until(lambda run: run.step >= 1)
    await trainer.start_run("run_2", attempt=2, steps=1)
    assert trainer.processes("run_1") == []
    last = (await trainer.events("run_1"))[-1].state_changed
    assert (last.state, last.reason) == (pb.RUN_STATE_CANCELLED, "attempt 2 of the job was started")
    assert (await trainer.events("run_2"))[-1].state_changed.state == pb.RUN_STATE_COMPLETED


async def test_no_more_runs_than_there_are_places(roomy_trainer: InnerTrainer) -> None:
    trainer = roomy_trainer
    await trainer.start(runs=2)
    await trainer.start_run("run_1", job_id="job_1", steps=10_000, step_seconds=0.05)
    await trainer.start_run("run_2", job_id="job_2", steps=10_000, step_seconds=0.05)
    error = await refusal(trainer.stub.StartRun(start_request("run_3", job_id="job_3")))
    assert (error.reason, error.retry_after) == ("NO_CAPACITY", 5.0)
    # What was refused left nothing behind, and may come again.
    assert not trainer.run_dir("run_3").exists()
    await cancel(trainer, "run_1")  # type: ignore[misc]
    await trainer.until(lambda run: run.state == pb.RUN_STATE_CANCELLED)
    await trainer.start_run("run_3", job_id="job_3", steps=1)
    assert (await trainer.get("run_2")).state in (pb.RUN_STATE_STARTING, pb.RUN_STATE_RUNNING)


async def test_a_run_that_is_not_over_is_not_deleted(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05)
    assert await reason_of(delete(trainer)) == "RUN_ACTIVE"
    assert (await trainer.get()).state in (pb.RUN_STATE_STARTING, pb.RUN_STATE_RUNNING)


async def test_a_process_that_lingers_keeps_its_place_and_is_killed_in_the_end(
    roomy_trainer: InnerTrainer,
) -> None:
    trainer = roomy_trainer
    await trainer.start(linger=1.0)
    await trainer.start_run(steps=1, linger=True)
    assert (await trainer.events())[-1].state_changed.state == pb.RUN_STATE_COMPLETED
    assert await reason_of(trainer.stub.StartRun(start_request("run_2", job_id="job_2"))) == "NO_CAPACITY"
    await trainer.until_gone()
    assert (await trainer.get()).state == pb.RUN_STATE_COMPLETED
    await trainer.start_run_once_free("run_2", job_id="job_2", steps=1)


async def test_deleting_a_run_whose_process_lingers_kills_it(
    roomy_trainer: InnerTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_EXIT_BEFORE_DELETE_SECONDS", 0.3)
    trainer = roomy_trainer
    await trainer.start(linger=3_000)
    await trainer.start_run(steps=1, linger=True)
    await trainer.events()
    await delete(trainer)  # type: ignore[misc]
    assert trainer.processes("run_1") == []
    assert not trainer.run_dir("run_1").exists()


async def test_everything_wrong_in_a_start_is_told_at_once(trainer: InnerTrainer) -> None:
    wrong = spec()
    wrong["hyperparameters"] = {"seed": "x", "rollouts_per_prompt": 8, "global_batch_size": 20, "group": 1}
    wrong["rewards"] = []
    wrong["dataset"]["row_count"] = 0
    del wrong["output_name"]
    error = await refusal(
        trainer.stub.StartRun(
            pb.StartRunRequest(
                run_id="../etc", attempt=0, spec_json=json.dumps(wrong), checkpoint_uri="/jobs/../../x"
            )
        )
    )
    assert isinstance(error, InvalidArgumentError)
    messages = {violation.field: violation.message for violation in error.violations}
    assert messages.keys() == {
        *("run_id", "job_id", "attempt", "checkpoint_uri"),
        *("spec_json.output_name", "spec_json.rewards", "spec_json.dataset.row_count"),
        *("spec_json.hyperparameters.seed", "spec_json.hyperparameters.group"),
        "spec_json.hyperparameters.global_batch_size",
    }
    assert messages["spec_json.hyperparameters.global_batch_size"].endswith("16 or 24 would work")
    assert "below the artifact root" in messages["checkpoint_uri"]


@pytest.mark.parametrize(
    ("spec_json", "field", "words"),
    [
        ("{", "spec_json", "is not JSON"),
        ("[]", "spec_json", "not a JSON object"),
        ("", "spec_json.base_model", "is missing"),
        (
            json.dumps({**spec(), "dataset": {"uri": "../x.parquet", "sha256": "", "row_count": 1}}),
            "spec_json.dataset.uri",
            "below the artifact root",
        ),
        (
            json.dumps({**spec(), "hyperparameters": {"use_unsloth": True}}),
            "hyperparameters.use_unsloth",
            "set unsloth_python of the trainer",
        ),
    ],
)
async def test_specs_that_cannot_be_trained(
    trainer: InnerTrainer, spec_json: str, field: str, words: str
) -> None:
    request = pb.StartRunRequest(run_id="run_1", job_id="job_1", attempt=1, spec_json=spec_json)
    error = await refusal(trainer.stub.StartRun(request))
    assert isinstance(error, InvalidArgumentError)
    assert words in {violation.field: violation.message for violation in error.violations}[field]


async def test_ids_and_graces_that_make_no_sense(trainer: InnerTrainer) -> None:
    for call in (
        trainer.stub.GetRun(pb.GetRunRequest()),
        trainer.stub.PauseRun(pb.PauseRunRequest(run_id="..")),
        trainer.stub.DeleteRun(pb.DeleteRunRequest(run_id="a/b")),
    ):
        error = await refusal(call)
        assert isinstance(error, InvalidArgumentError)
        assert [violation.field for violation in error.violations] == ["run_id"]
    request = pb.CancelRunRequest(run_id="/", grace=duration_pb2.Duration(seconds=-1))
    error = await refusal(trainer.stub.CancelRun(request))
    assert isinstance(error, InvalidArgumentError)
    assert [violation.field for violation in error.violations] == ["run_id", "grace"]
