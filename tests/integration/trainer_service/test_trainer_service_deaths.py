"""What dies with what: run processes, keepers and the service, killed at every point."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path

import psutil
import pytest
from trainer_process import PATIENCE, InnerTrainer, OuterTrainer, Trainer, spec, start_request

from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.statuses import RunState
from trainer_service.journal import JournalWriter, RunStateChanged, StepCompleted
from trainer_service.ledger import Ledger
from trainer_service.run_directory import RunDirectories, RunStart

pytestmark = pytest.mark.faults

GONE_WITHIN = 5.0  # seconds, the promise of the contract


async def keeper_of(trainer: Trainer, run_id: str = "run_1") -> int:
    [keeper] = [
        pid
        for pid in trainer.processes(run_id)
        if b"trainer_service.launchers.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return keeper


async def failure_of(trainer: Trainer, run_id: str = "run_1") -> pb.RunError:
    last = (await trainer.events(run_id))[-1].state_changed
    assert last.state == pb.RUN_STATE_FAILED
    run = await trainer.get(run_id)
    assert (run.state, run.error) == (pb.RUN_STATE_FAILED, last.error)
    return last.error


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("exit 3", ["the run's process ended with status 3 before the run was over", "about to end"]),
        ("return", ["ended with status 0 before", "about to end"]),
        ("kill", ["killed by signal 9 (SIGKILL)", "short of memory", "about to end"]),
        ("raise", ["status 1", "RuntimeError: the tokenizer has no chat template"]),
    ],
)
async def test_a_run_that_dies_has_failed_and_its_last_words_are_kept(
    trainer: InnerTrainer, end: str, words: list[str]
) -> None:
    await trainer.start_run(steps=5, end=end, end_at_step=3)
    error = await failure_of(trainer)
    assert error.code == "process_died"
    for part in words:
        assert part in error.message
    events = await trainer.events()
    assert [event.sequence for event in events] == list(range(1, 7))
    assert [event.step_completed.step for event in events[2:5]] == [1, 2, 3]
    assert (await trainer.get()).step == 3


async def test_a_run_killed_from_outside_takes_its_children_along(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05, children=True)
    await trainer.until(lambda run: run.step >= 1)
    keeper = await keeper_of(trainer)
    [run] = [
        pid
        for pid in trainer.processes("run_1")
        if b"scripted_run.py" in Path(f"/proc/{pid}/cmdline").read_bytes() and pid != keeper
    ]
    os.kill(run, signal.SIGTERM)
    assert "killed by signal 15 (Terminated)" in (await failure_of(trainer)).message
    assert trainer.processes("run_1") == []


async def test_a_keeper_killed_from_outside_takes_the_run_along(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=True, children=True)
    await trainer.until(lambda run: run.step >= 1)
    os.kill(await keeper_of(trainer), signal.SIGKILL)
    assert (await failure_of(trainer)).code == "process_died"
    assert trainer.processes("run_1") == []


async def test_a_pause_that_ends_in_death_is_a_failure(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=True, end="exit 1", end_at_step=20)
    await trainer.stub.PauseRun(pb.PauseRunRequest(run_id="run_1"))
    assert (await failure_of(trainer)).code == "process_died"


async def test_a_program_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    from trainer_service.launchers.local import LocalLauncher
    from trainer_service.runs import RunRegistry

    registry = await RunRegistry.open(
        tmp_path, LocalLauncher(["/no/such/python"]), max_concurrent_runs=1, linger_seconds=5
    )
    await registry.start(run_start(tmp_path))
    entries = [record.entry async for record in registry.follow("run_1", 0)]
    end = entries[-1]
    assert isinstance(end, RunStateChanged) and end.error is not None
    assert "/no/such/python cannot be started" in end.error.message
    assert (await registry.get("run_1")).state is RunState.FAILED
    await registry.stop()
    registry.close()


@pytest.mark.parametrize("deaf", [False, True])
async def test_nothing_of_a_run_is_left_after_the_service_is_killed(
    mortal_trainer: OuterTrainer, deaf: bool
) -> None:
    trainer = mortal_trainer
    await trainer.start()
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=deaf, children=True)
    await trainer.until(lambda run: run.step >= 3)
    assert len(trainer.processes("run_1")) == 4
    await trainer.kill()
    await trainer.until_gone(within=GONE_WITHIN)

    await trainer.start()
    error = await failure_of(trainer)
    assert (error.code, error.message) == (
        "process_died",
        "the trainer service died, and the run's process with it",
    )
    events = await trainer.events()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert sum(event.HasField("step_completed") for event in events) >= 3
    # A repeated StartRun, as of a gateway that had no answer, starts nothing; the next attempt does.
    again = await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=deaf, children=True)
    assert again.state == pb.RUN_STATE_FAILED
    await trainer.start_run("run_2", attempt=2, steps=1)
    assert (await trainer.events("run_2"))[-1].state_changed.state == pb.RUN_STATE_COMPLETED


async def test_a_service_killed_right_after_a_start_leaves_nothing(mortal_trainer: OuterTrainer) -> None:
    trainer = mortal_trainer
    await trainer.start()
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=True)
    await trainer.kill()
    await trainer.until_gone(within=GONE_WITHIN)
    await trainer.start()
    assert (await failure_of(trainer)).code == "process_died"


async def test_leftovers_of_a_killed_service_and_a_killed_keeper_are_found(
    mortal_trainer: OuterTrainer,
) -> None:
    trainer = mortal_trainer
    await trainer.start()
    await trainer.start_run(steps=10_000, step_seconds=0.05, deaf=True, children=True)
    await trainer.until(lambda run: run.step >= 1)
    assert trainer.process is not None
    keeper, pid = await keeper_of(trainer), trainer.process.pid
    trainer.process.send_signal(signal.SIGSTOP)  # so that it does not clean up between the two kills
    await trainer.until_true(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    os.kill(keeper, signal.SIGKILL)
    await trainer.kill()
    await trainer.until_true(lambda: keeper not in trainer.processes("run_1"))  # dying takes a moment
    assert len(trainer.processes("run_1")) == 3
    await trainer.start()
    assert trainer.processes("run_1") == []
    assert (await failure_of(trainer)).code == "process_died"


async def test_a_run_that_completed_before_the_service_died_stays_completed(
    mortal_trainer: OuterTrainer,
) -> None:
    trainer = mortal_trainer
    await trainer.start()
    await trainer.start_run(steps=1, linger=True)
    before = await trainer.events()
    await trainer.kill()
    await trainer.until_gone(within=GONE_WITHIN)
    await trainer.start()
    assert await trainer.events() == before
    assert (await trainer.get()).state == pb.RUN_STATE_COMPLETED


async def test_stopping_the_service_ends_its_runs_and_their_streams(mortal_trainer: OuterTrainer) -> None:
    trainer = mortal_trainer
    await trainer.start()
    await trainer.start_run(steps=10_000, step_seconds=0.05, children=True)
    await trainer.until(lambda run: run.step >= 1)
    following = asyncio.create_task(trainer.events())
    await asyncio.sleep(0.2)
    assert await trainer.stop() == 0
    last = (await following)[-1].state_changed
    assert (last.state, last.error.code, last.error.message) == (
        *(pb.RUN_STATE_FAILED, "process_died", "the trainer service was stopped"),
    )
    assert trainer.processes("run_1") == []
    await trainer.start()
    assert (await failure_of(trainer)).message == "the trainer service was stopped"


async def test_the_service_dies_with_its_parent_if_told_to(mortal_trainer: OuterTrainer) -> None:
    trainer = mortal_trainer
    await trainer.start("--die-with-stdin")
    await trainer.start_run(steps=10_000, step_seconds=0.05)
    assert trainer.process is not None and trainer.process.stdin is not None
    trainer.process.stdin.close()
    assert await asyncio.wait_for(trainer.process.wait(), PATIENCE) == 0
    assert trainer.processes("run_1") == []


async def test_a_data_directory_has_one_service(mortal_trainer: OuterTrainer) -> None:
    trainer = mortal_trainer
    await trainer.start()
    second = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainer_service", "--data-dir", str(trainer.data_dir)),
        *("--address", "127.0.0.1:0"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(second.communicate(), PATIENCE)
    assert second.returncode == 1
    assert b"is in use by process" in errors


# --- crash windows, made by hand: what a service that died in them leaves on disk


def run_start(root: Path, run_id: str = "run_1", attempt: int = 1) -> RunStart:
    return RunStart.model_validate(
        {"run_id": run_id, "job_id": "job_1", "attempt": attempt, "spec": spec(), "artifact_root": root}
    )


async def test_died_between_the_record_and_the_process(roomy_trainer: InnerTrainer) -> None:
    trainer = roomy_trainer
    RunDirectories(trainer.data_dir / "trainer" / "runs").create(run_start(trainer.data_dir, attempt=4))
    await trainer.start()
    assert (await failure_of(trainer)).code == "process_died"
    # The attempt counts, though the ledger had not heard of it.
    with pytest.raises(Exception, match="attempt 4 was started here"):
        await trainer.stub.StartRun(start_request("run_0", attempt=3))


async def test_died_between_a_cancel_and_its_end(roomy_trainer: InnerTrainer) -> None:
    trainer = roomy_trainer
    RunDirectories(trainer.data_dir / "trainer" / "runs").create(run_start(trainer.data_dir))
    ledger = Ledger(trainer.data_dir / "trainer" / "ledger.sqlite3")
    ledger.remember_cancelled("run_1")
    ledger.close()
    await trainer.start()
    assert (await trainer.events())[-1].state_changed.state == pb.RUN_STATE_CANCELLED


async def test_died_while_a_directory_was_made_or_deleted(roomy_trainer: InnerTrainer) -> None:
    trainer = roomy_trainer
    runs = trainer.data_dir / "trainer" / "runs"
    for name in (".staged-run_1", ".deleted-run_0"):
        (runs / name).mkdir(parents=True)
        (runs / name / "journal.sqlite3").write_bytes(b"half")
    await trainer.start()
    assert list(runs.iterdir()) == []
    await trainer.start_run(steps=1)
    assert (await trainer.events())[-1].state_changed.state == pb.RUN_STATE_COMPLETED


async def test_a_damaged_run_does_not_keep_the_service_from_starting(roomy_trainer: InnerTrainer) -> None:
    trainer = roomy_trainer
    runs = trainer.data_dir / "trainer" / "runs"
    directories = RunDirectories(runs)
    for run_id in ("run_1", "run_2", "run_3"):
        path = directories.create(run_start(trainer.data_dir, run_id))
        with JournalWriter(path) as journal:
            journal.append_all([StepCompleted(1, 1, {}), RunStateChanged(RunState.COMPLETED)])
    (runs / "run_1" / "start.json").write_text(json.dumps({"run_id": "run_1"}))
    (runs / "run_2" / "journal.sqlite3").write_bytes(b"overwritten by something else " * 1_000)
    await trainer.start()
    assert [run.run_id for run in (await trainer.stub.ListRuns(pb.ListRunsRequest())).runs] == ["run_3"]
    assert sum(path.name.startswith(".unreadable-") for path in runs.iterdir()) == 2


async def test_opening_the_journal_with_another_tool_disturbs_nothing(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=40, step_seconds=0.02)
    await trainer.until(lambda run: run.step >= 1)
    with sqlite3.connect(trainer.run_dir("run_1") / "journal.sqlite3") as other:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(0.5)
        other.rollback()
    other.close()
    events = await trainer.events()
    assert events[-1].state_changed.state == pb.RUN_STATE_COMPLETED
    assert [e.step_completed.step for e in events if e.HasField("step_completed")] == list(range(1, 41))
