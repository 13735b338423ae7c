"""A run's process without training: speaks journal and control line as the real one, and follows a script.

The script is a JSON object in the run spec's base_model; see `Script`.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from plaudit.types.statuses import RunState
from trainer_service.control import RunControl
from trainer_service.journal import (
    CheckpointRemoved,
    CheckpointSaved,
    CompletionsWritten,
    JournalWriter,
    LogLine,
    RunStateChanged,
    StepCompleted,
)
from trainer_service.run_directory import read_start


class Script(BaseModel):
    steps: int = 3
    step_seconds: float = 0.0
    batch: int = 1  # steps in one commit
    end: str = "completed"  # or: "exit 3", "kill", "return", "raise"
    end_at_step: int | None = None
    deaf: bool = False  # neither listens to commands nor notices the service's death
    linger: bool = False  # stays after its last entry
    children: bool = False  # starts one process in its group and one outside
    detail: str = ""
    silent: bool = False  # sends no reports
    saves: bool = False  # the last step has its checkpoint before it ends


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--control-fds")
    options = parser.parse_args()
    start = read_start(options.run_dir)
    script = Script.model_validate_json(start.spec.base_model)
    read_fd, write_fd = (int(fd) for fd in options.control_fds.split(","))
    control = RunControl.from_fds(read_fd, write_fd)
    if not script.deaf:
        control.start()
    if script.children:
        subprocess.Popen(["sleep", "1000"])
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with JournalWriter(options.run_dir) as journal:
        play(script, journal, control)
    if script.linger:
        time.sleep(1000)


def play(script: Script, journal: JournalWriter, control: RunControl) -> None:
    def tell(sequence: int, step: int) -> None:
        if not script.silent:
            control.report(
                sequence=sequence, step=step, total_steps=script.steps, status_detail=script.detail
            )

    tell(journal.append(RunStateChanged(RunState.RUNNING)), 0)
    step = 0
    while step < script.steps:
        if control.cancel_requested:
            tell(journal.append(RunStateChanged(RunState.CANCELLED)), step)
            return
        if control.pause_requested:
            journal.append(RunStateChanged(RunState.PAUSING))
            journal.append(checkpoint(step))
            tell(journal.append(RunStateChanged(RunState.PAUSED, reason="asked to")), step)
            return
        if step == script.end_at_step:
            break
        steps = [
            StepCompleted(n, script.steps, {"loss": float("nan"), "reward_mean": n / 7})
            for n in range(step + 1, min(step + script.batch, script.steps) + 1)
        ]
        step = steps[-1].step
        tell(journal.append_all(steps), step)
        time.sleep(script.step_seconds)
    if script.saves:
        journal.append(checkpoint(step))
    print("about to end", file=sys.stderr, flush=True)
    match script.end.split():
        case ["exit", status]:
            os._exit(int(status))
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["raise"]:
            raise RuntimeError("the tokenizer has no chat template")
        case ["completed"]:
            journal.append(CheckpointRemoved(1, "jobs/j/attempt-1/checkpoint-000001"))
            journal.append(checkpoint(step))
            journal.append(
                CompletionsWritten(step, "jobs/j/attempt-1/completions/step.parquet", 8, 100, "cd")
            )
            journal.append(LogLine("warning", "slow", {"seconds": 1.5}))
            tell(journal.append(RunStateChanged(RunState.COMPLETED)), step)


def checkpoint(step: int) -> CheckpointSaved:
    return CheckpointSaved(step, f"jobs/j/attempt-1/checkpoint-{step:06d}", 1234, "ab")


if __name__ == "__main__":
    main()
