"""A run's journal: gapless, durable, readable while it is written, and no trap for the training loop."""

import math
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.journal import (
    CheckpointRemoved,
    CheckpointSaved,
    CompletionsWritten,
    JournalEntry,
    JournalError,
    JournalReader,
    JournalRecord,
    JournalWriter,
    LogLine,
    RunError,
    RunStateChanged,
    StepCompleted,
)
from trainer_service.journal import _encoding as encoding_module
from trainer_service.journal import _store as journal_module

ONE_OF_EACH: list[JournalEntry] = [
    RunStateChanged(RunState.STARTING),
    RunStateChanged(RunState.RUNNING),
    StepCompleted(1, 10, {"reward_mean": 0.25, "reward/a/mean": -1.5}),
    CompletionsWritten(1, "jobs/j/attempt-1/completions/step-000001.parquet", 64, 12_345, "0f" * 32),
    CheckpointSaved(1, "jobs/j/attempt-1/checkpoint-000001", 2**40, "ab" * 32),
    CheckpointRemoved(1, "jobs/j/attempt-1/checkpoint-000001"),
    LogLine("warning", "naïve ∑ \u2028 \x00", {"server": "judge", "waited": 1.5, "ids": [1, 2]}),
    RunStateChanged(RunState.FAILED, RunError(ErrorCode.CONFIG_ERROR, "no such model"), reason=""),
]


def read_all(run_dir: Path) -> list[JournalRecord]:
    with JournalReader(run_dir) as reader:
        return reader.read_after(0, 1_000_000)


def test_entries_come_back_as_they_were_written_with_gapless_numbers_from_one(tmp_path: Path) -> None:
    before = time.time()
    with JournalWriter(tmp_path) as writer:
        numbers = [writer.append(entry) for entry in ONE_OF_EACH]
    records = read_all(tmp_path)
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [record.sequence for record in records] == numbers
    assert [record.entry for record in records] == ONE_OF_EACH
    assert [record.is_terminal for record in records] == [False] * 7 + [True]
    assert all(before - 1e-3 <= r.written_at.timestamp() <= time.time() for r in records)
    assert records[0].written_at.utcoffset() is not None


def test_a_second_writer_goes_on_where_the_first_left(tmp_path: Path) -> None:
    with JournalWriter(tmp_path) as first:
        first.append(RunStateChanged(RunState.STARTING))
    with JournalWriter(tmp_path) as second:
        assert second.append(RunStateChanged(RunState.RUNNING)) == 2
        assert second.append_all([StepCompleted(n, 9, {}) for n in (1, 2, 3)]) == 5
    assert [r.sequence for r in read_all(tmp_path)] == [1, 2, 3, 4, 5]


@given(st.dictionaries(st.text(max_size=20), st.floats(), max_size=8))
def test_every_float_survives_bit_for_bit(metrics: dict[str, float]) -> None:
    [entry] = [encoding_module.decode("step_completed", encoding_module.encode(StepCompleted(1, 2, metrics)))]
    assert isinstance(entry, StepCompleted)
    assert entry.metrics.keys() == metrics.keys()
    for name, value in metrics.items():
        if math.isnan(value):
            assert math.isnan(entry.metrics[name])
        else:
            assert struct.pack("<d", entry.metrics[name]) == struct.pack("<d", value)


def test_nan_infinity_and_array_scalars_reach_the_disk(tmp_path: Path) -> None:
    metrics = {"loss": math.nan, "up": math.inf, "down": -math.inf, "array": np.float32(0.1)}
    with JournalWriter(tmp_path) as writer:
        writer.append(StepCompleted(1, 1, metrics))
    [record] = read_all(tmp_path)
    assert isinstance(record.entry, StepCompleted)
    assert math.isnan(record.entry.metrics["loss"])
    assert record.entry.metrics["up"] == math.inf
    assert record.entry.metrics["down"] == -math.inf
    assert record.entry.metrics["array"] == 0.10000000149011612


def test_what_was_appended_is_on_disk_when_the_writer_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from trainer_service.journal import JournalWriter, StepCompleted\n"
        "writer = JournalWriter(Path(sys.argv[1]))\n"
        "for n in range(1, 6): writer.append(StepCompleted(n, 5, {'loss': n / 3}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [r.entry for r in read_all(tmp_path)] == [
        StepCompleted(n, 5, {"loss": n / 3}) for n in range(1, 6)
    ]
    with JournalWriter(tmp_path) as writer:
        assert writer.append(RunStateChanged(RunState.FAILED)) == 6


def test_readers_neither_disturb_the_writer_nor_see_gaps(tmp_path: Path) -> None:
    total = 300
    writer = JournalWriter(tmp_path)
    wrong: list[object] = []
    done = threading.Event()

    def read_on() -> None:
        seen = 0
        with JournalReader(tmp_path) as reader:
            while seen < total:
                finished = done.is_set()
                for record in reader.read_after(seen, 50):
                    if record.sequence != seen + 1 or record.entry != StepCompleted(seen + 1, total, {}):
                        wrong.append(record)
                    seen = record.sequence
                if finished and seen < total and not reader.read_after(seen, 1):
                    wrong.append(f"ended at {seen}")
                    return

    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(1, total + 1):
        assert writer.append(StepCompleted(n, total, {})) == n
    done.set()
    for reader in readers:
        reader.join(60)
    writer.close()
    assert wrong == []


def test_threads_may_append_at_once(tmp_path: Path) -> None:
    with JournalWriter(tmp_path) as writer:
        threads = [
            threading.Thread(
                target=lambda name=name: [writer.append(LogLine("info", f"{name}{n}")) for n in range(50)]
            )
            for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    records = read_all(tmp_path)
    assert [r.sequence for r in records] == list(range(1, 201))
    for name in "abcd":
        own = [
            r.entry.message for r in records if isinstance(r.entry, LogLine) and r.entry.message[0] == name
        ]
        assert own == [f"{name}{n}" for n in range(50)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_BUSY_TIMEOUT_SECONDS", 0.05)


def lock(run_dir: Path) -> sqlite3.Connection:
    other = sqlite3.connect(run_dir / "journal.sqlite3", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_locked_database_never_raises_into_the_training_loop(tmp_path: Path, impatient: None) -> None:
    writer = JournalWriter(tmp_path)
    writer.append(RunStateChanged(RunState.RUNNING))
    other = lock(tmp_path)
    assert writer.append(StepCompleted(1, 3, {"loss": 1.0})) == 2
    assert writer.append(StepCompleted(2, 3, {"loss": 2.0})) == 3
    assert [r.sequence for r in read_all(tmp_path)] == [1]
    other.rollback()
    assert writer.append(StepCompleted(3, 3, {"loss": 3.0})) == 4
    assert [(r.sequence, r.entry) for r in read_all(tmp_path)][1:] == [
        (n + 1, StepCompleted(n, 3, {"loss": float(n)})) for n in (1, 2, 3)
    ]
    written = [r.written_at for r in read_all(tmp_path)]
    assert written == sorted(written) and len(set(written)) == 4
    writer.close()


def test_what_is_held_is_written_on_close(tmp_path: Path, impatient: None) -> None:
    writer = JournalWriter(tmp_path)
    other = lock(tmp_path)
    writer.append(LogLine("info", "held"))
    other.rollback()
    writer.close()
    assert [r.entry for r in read_all(tmp_path)] == [LogLine("info", "held")]


def test_entries_are_not_held_without_end(
    tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_MAX_HELD_ENTRIES", 2)
    writer = JournalWriter(tmp_path)
    lock(tmp_path)
    writer.append(LogLine("info", "1"))
    writer.append(LogLine("info", "2"))
    with pytest.raises(JournalError, match="cannot be written: database is locked"):
        writer.append(LogLine("info", "3"))


def test_the_last_entry_waits_for_the_lock(tmp_path: Path, impatient: None) -> None:
    writer = JournalWriter(tmp_path)
    other = lock(tmp_path)
    threading.Timer(0.4, other.rollback).start()
    assert writer.append(RunStateChanged(RunState.COMPLETED)) == 1
    assert read_all(tmp_path)[-1].is_terminal
    writer.close()


def test_a_last_entry_that_cannot_be_written_is_an_error(
    tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_TERMINAL_PATIENCE_SECONDS", 0.1)
    writer = JournalWriter(tmp_path)
    lock(tmp_path)
    with pytest.raises(JournalError, match="database is locked"):
        writer.append(RunStateChanged(RunState.COMPLETED))


@pytest.mark.parametrize("state", [s for s in RunState if s.is_terminal])
def test_nothing_follows_a_terminal_entry(tmp_path: Path, state: RunState) -> None:
    with JournalWriter(tmp_path) as writer:
        writer.append(RunStateChanged(state))
        with pytest.raises(JournalError, match="takes no log_line any more"):
            writer.append(LogLine("info", "too late"))
    with JournalWriter(tmp_path) as later, pytest.raises(JournalError, match="ended"):
        later.append(RunStateChanged(RunState.FAILED))
    assert len(read_all(tmp_path)) == 1


def test_two_writers_are_found_out(tmp_path: Path) -> None:
    with JournalWriter(tmp_path) as first, JournalWriter(tmp_path) as second:
        first.append(LogLine("info", "1"))
        with pytest.raises(JournalError, match="somebody else writes to it"):
            second.append(LogLine("info", "2"))
        assert first.append(LogLine("info", "3")) == 2
    assert [r.sequence for r in read_all(tmp_path)] == [1, 2]


def test_the_snapshot_says_where_the_run_stands(tmp_path: Path) -> None:
    with JournalWriter(tmp_path) as writer, JournalReader(tmp_path) as reader:
        assert reader.snapshot() == journal_module.JournalSnapshot(0, RunState.STARTING, None, 0, 0)
        for entry in ONE_OF_EACH[:-1]:
            writer.append(entry)
        writer.append(StepCompleted(12, 30, {}))
        assert reader.snapshot() == journal_module.JournalSnapshot(8, RunState.RUNNING, None, 12, 30)
        writer.append(ONE_OF_EACH[-1])
        failed = RunError(ErrorCode.CONFIG_ERROR, "no such model")
        assert reader.snapshot() == journal_module.JournalSnapshot(9, RunState.FAILED, failed, 12, 30)


def test_entries_are_kept_small_enough_for_a_message(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    with JournalWriter(tmp_path) as writer:
        writer.append(LogLine("error", long, {"text": long}))
        writer.append(RunStateChanged(RunState.FAILED, RunError(ErrorCode.TRAINING_ERROR, long), long))
    line, end = (r.entry for r in read_all(tmp_path))
    assert isinstance(line, LogLine) and isinstance(end, RunStateChanged) and end.error is not None
    assert line.fields == {"fields_left_out": "1000012 characters"}
    for text in (line.message, end.error.message, end.reason):
        assert text == f"{'x' * 16_384}… (983616 characters left out)"


def test_a_missing_journal_is_not_made_by_reading_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        JournalReader(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_journal_is_told_from_a_busy_one(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite3").write_bytes(b"this is no database, whatever its name says " * 100)
    with pytest.raises(JournalError, match="not a database"):
        JournalWriter(tmp_path)
    with pytest.raises(JournalError, match="damaged"):
        read_all(tmp_path)
