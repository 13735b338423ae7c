"""A run's process by itself: start.json, a control line, a journal; and reward servers as processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import DatasetReference, RewardBinding, RewardTarget, RunSpec
from trainer_service.control import RunControl
from trainer_service.journal import (
    JournalEntry,
    JournalReader,
    JournalWriter,
    RunStateChanged,
    StepCompleted,
)
from trainer_service.run_directory import RunDirectories, RunStart
from trainer_service.training.reporting import RunReporter
from trainer_service.training.run import _run

HERE = Path(__file__).parent
WAIT_SECONDS = 240.0
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_OFFLINE": "1",
}
Entry = TypeVar("Entry", bound=JournalEntry)

SMALL = {
    "rollouts_per_prompt": 4,
    "global_batch_size": 16,
    "max_response_length": 12,
    "max_prompt_length": 64,
    "learning_rate": 1e-4,
    "max_steps": 4,
    "checkpoint_every": 2.0,
    "kl_coef": 0.04,
}


def write_dataset(artifact_root: Path, rows: Sequence[tuple[Any, Mapping[str, Any]]]) -> DatasetReference:
    """Rows of (prompt, columns) in the normal form."""
    table = pa.table(
        {
            "prompt": [json.dumps(prompt) for prompt, _ in rows],
            "columns": [json.dumps(dict(columns)) for _, columns in rows],
        }
    )
    folder = artifact_root / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "new.parquet")
    digest = hashlib.sha256((folder / "new.parquet").read_bytes()).hexdigest()
    (folder / "new.parquet").rename(folder / f"{digest}.parquet")
    return DatasetReference(uri=f"datasets/{digest}.parquet", sha256=digest, row_count=len(rows))


def additions(count: int = 40) -> list[tuple[list[dict[str, str]], dict[str, int]]]:
    source = random.Random(1)
    rows = []
    for _ in range(count):
        left, right = source.randint(0, 19), source.randint(0, 19)
        rows.append(([{"role": "user", "content": f"What is {left} + {right}?"}], {"answer": left + right}))
    return rows


@contextlib.contextmanager
def reward_server(address: str = "127.0.0.1:0") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """tests/integration/training/odd_rewards.py as a process; yields its address."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "odd_rewards.py"), "--die-with-stdin", "--address", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the reward server did not start"
        yield json.loads(line)["address"], process
    finally:
        process.kill()
        process.wait(10)


def binding(reward: str, weight: float = 1.0, **fields: Any) -> RewardBinding:
    return RewardBinding(name=reward, server="odd", reward=reward, weight=weight, **fields)


def make_start(
    tmp_path: Path,
    rewards: Sequence[tuple[RewardBinding, str]],
    *,
    dataset: DatasetReference,
    attempt: int = 1,
    checkpoint_uri: str | None = None,
    base_model: str = "builtin:tiny",
    eval_dataset: DatasetReference | None = None,
    **hyperparameters: Any,
) -> RunStart:
    """What the gateway would ask for; `rewards` are bindings and the address of each one's server."""
    if eval_dataset is not None:
        hyperparameters["eval_dataset_id"] = "held-out"
    spec = RunSpec(
        base_model=base_model,
        output_name="adder",
        method="grpo",
        hyperparameters=GrpoHyperparameters(**{**SMALL, **hyperparameters}),
        dataset=dataset,
        eval_dataset=eval_dataset,
        rewards=tuple(RewardTarget(binding=b, addresses=(address,)) for b, address in rewards),
    )
    return RunStart(
        run_id=f"run-{uuid.uuid4().hex}",
        job_id="job",
        attempt=attempt,
        spec=spec,
        checkpoint_uri=checkpoint_uri,
        artifact_root=tmp_path / "artifacts",
    )


class Told:
    """What a run has told so far: its journal."""

    run_dir: Path

    def entries(self, kind: type[Entry]) -> list[Entry]:
        with JournalReader(self.run_dir) as reader:
            return [r.entry for r in reader.read_after(0, 10_000) if isinstance(r.entry, kind)]

    def sequences(self) -> list[int]:
        with JournalReader(self.run_dir) as reader:
            return [r.sequence for r in reader.read_after(0, 10_000)]

    def states(self) -> list[RunStateChanged]:
        return self.entries(RunStateChanged)

    def metrics(self) -> list[dict[str, float]]:
        return [entry.metrics for entry in self.entries(StepCompleted)]


class RunHere(Told):
    """A run in this process, which has the libraries loaded already; the control line is told by methods."""

    def __init__(self, tmp_path: Path, start: RunStart) -> None:
        self.run_dir = RunDirectories(tmp_path / "runs").create(start)
        self.start = start
        self._fds = os.pipe()
        self.control = RunControl(*self._fds)
        self.details: list[str] = []
        report = self.control.report

        def note(**told: Any) -> None:
            if told["status_detail"] not in self.details:
                self.details.append(told["status_detail"])
            report(**told)

        self.control.report = note

    def go(self) -> RunStateChanged:
        """Trains; returns the last entry."""
        with JournalWriter(self.run_dir) as journal:
            end = _run(self.start, self.run_dir, RunReporter(journal, self.control))
        for fd in self._fds:
            os.close(fd)
        assert self.states()[-1] == end
        assert self.sequences() == list(range(1, len(self.sequences()) + 1))
        return end


class RunProcess(Told):
    """`python -m trainer_service.training.run` on a run directory."""

    def __init__(self, tmp_path: Path, start: RunStart) -> None:
        self.run_dir = RunDirectories(tmp_path / "runs").create(start)
        command_read, self.commands = os.pipe()
        self.reports, report_write = os.pipe()
        self.log = self.run_dir / "output.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "trainer_service.training.run"),
                    *("--run-dir", str(self.run_dir), "--control-fds", f"{command_read},{report_write}"),
                ],
                stdout=log,
                stderr=log,
                pass_fds=(command_read, report_write),
                env=ENVIRONMENT,
            )
        os.close(command_read)
        os.close(report_write)
        self._reports = b""

    def send(self, **command: Any) -> None:
        os.write(self.commands, json.dumps(command).encode() + b"\n")

    def wait(self) -> int:
        """Waits for the end of the process and returns its status."""
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run goes on:\n{self.log.read_text()[-3000:]}") from None

    def details(self) -> list[str]:
        """Status details that were reported so far, in order, without repetitions."""
        os.set_blocking(self.reports, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.reports, 65_536):
                self._reports += chunk
        details = [json.loads(line)["status_detail"] for line in self._reports.splitlines()]
        return [d for i, d in enumerate(details) if d and d not in details[:i]]

    def until(self, probe: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not probe():
            assert time.monotonic() < deadline, f"waited for {what}:\n{self.log.read_text()[-3000:]}"
            assert self.process.poll() is None, f"it ended before {what}:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self.commands)
        os.close(self.reports)
