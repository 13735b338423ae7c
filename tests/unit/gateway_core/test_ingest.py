"""Taking in journals: each entry once, in order, whatever comes twice or is missing."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stored_jobs import add_job, add_run

from gateway.events import LogLine, StepMetrics
from gateway.jobs.ingest import ingest
from gateway.jobs.job import JobError
from gateway.jobs.journal import (
    JournalEntry,
    JournalEvent,
    LogRecord,
    RunStateChanged,
    StepCompleted,
    UnknownEntry,
)
from gateway.store import Store
from gateway.store.jobs import JobRecord
from gateway.store.runs import RunPhase
from plaudit.errors import InternalError
from plaudit.types.statuses import JobStatus, RunState

NO_FILES = Path("/nonexistent")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def entries(*events: JournalEvent, first: int = 1) -> list[JournalEntry]:
    return [
        JournalEntry(n, NOON + timedelta(seconds=n), event) for n, event in enumerate(events, start=first)
    ]


def a_journal(steps: int) -> list[JournalEntry]:
    return entries(
        RunStateChanged(RunState.STARTING),
        RunStateChanged(RunState.RUNNING),
        *(StepCompleted(step, steps, {"loss": 1 / step}) for step in range(1, steps + 1)),
        RunStateChanged(RunState.COMPLETED),
    )


async def a_run(store: Store) -> tuple[JobRecord, str]:
    record = await add_job(store)
    run_id = await add_run(store, record, 1)
    record = replace(record, run_id=run_id, job=replace(record.job, status=JobStatus.PROVISIONING, attempt=1))
    async with store.transaction() as session:
        await session.jobs.save(record)
    return record, run_id


@pytest.mark.parametrize("seed", range(5))
async def test_entries_that_come_again_count_once(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    record, run_id = await a_run(store)
    journal = a_journal(30)
    stored = 0
    while stored < len(journal):
        start = rng.randint(max(0, stored - 9), stored)
        end = min(len(journal), start + rng.randint(1, 12))
        run = await ingest(store, NO_FILES, run_id, journal[start:end])
        stored = max(stored, end)
        assert run.last_sequence == stored
    assert run.phase is RunPhase.ENDED
    events = await store.events_after(0, job_id=record.job.id, limit=1000)
    steps = [event.payload.step for event in events if isinstance(event.payload, StepMetrics)]
    assert steps == list(range(1, 31))
    async with store.snapshot() as reading:
        after = await reading.jobs.find(record.job.id)
        rows = list(await reading.points._connection.execute_fetchall("SELECT count(*) FROM journal"))
    assert after is not None
    assert (after.job.status, after.job.current_step, after.run_id) == (JobStatus.COMPLETED, 30, None)
    assert after.job.started_at == NOON + timedelta(seconds=2)
    assert rows[0][0] == len(journal)


async def test_a_missing_entry_is_noticed_and_nothing_of_it_is_stored(store: Store) -> None:
    record, run_id = await a_run(store)
    journal = a_journal(9)
    await ingest(store, NO_FILES, run_id, journal[:4])
    number = await store.newest_event()
    for wrong in (journal[5:8], [journal[4], journal[6]]):
        with pytest.raises(InternalError) as gap:
            await ingest(store, NO_FILES, run_id, wrong)
        assert gap.value.reason == "JOURNAL_GAP"
    assert await store.newest_event() == number
    await ingest(store, NO_FILES, run_id, journal[4:])
    async with store.snapshot() as reading:
        after = await reading.jobs.find(record.job.id)
    assert after is not None
    assert after.job.status is JobStatus.COMPLETED


async def test_entries_of_a_newer_trainer_are_passed_over(store: Store) -> None:
    _, run_id = await a_run(store)
    run = await ingest(store, NO_FILES, run_id, entries(RunStateChanged(RunState.STARTING), UnknownEntry()))
    assert (run.last_sequence, run.phase) == (2, RunPhase.STARTED)


@pytest.mark.parametrize(
    ("record_json", "line"),
    [
        (
            '{"level": "warn", "event": "slow", "seconds": 2}',
            LogLine("warning", "slow", '{"seconds": 2}'),
        ),
        ('{"level": "critical", "message": "x"}', LogLine("error", "x", "{}")),
        ("no json", LogLine("info", "no json")),
        ("[1]", LogLine("info", "[1]")),
    ],
)
async def test_log_records_become_lines(store: Store, record_json: str, line: LogLine) -> None:
    record, run_id = await a_run(store)
    await ingest(store, NO_FILES, run_id, entries(LogRecord(record_json)))
    events = await store.events_after(0, job_id=record.job.id, limit=9)
    assert events[-1].payload == line


@pytest.mark.parametrize(
    ("before", "code", "after", "error"),
    [
        (JobStatus.RUNNING, "process_died", JobStatus.QUEUED, None),
        (JobStatus.RUNNING, "trainer_lost", JobStatus.QUEUED, None),
        (JobStatus.RUNNING, "out_of_memory", JobStatus.FAILED, "out_of_memory"),
        (JobStatus.RUNNING, "config_error", JobStatus.FAILED, "config_error"),
        (JobStatus.RUNNING, "dataset_error", JobStatus.FAILED, "dataset_error"),
        (JobStatus.RUNNING, "of_tomorrow", JobStatus.FAILED, "of_tomorrow"),
        (JobStatus.RUNNING, None, JobStatus.FAILED, "training_error"),
        (JobStatus.PAUSING, "process_died", JobStatus.PAUSED, None),
        (JobStatus.PAUSING, "config_error", JobStatus.FAILED, "config_error"),
        (JobStatus.CANCELLING, "process_died", JobStatus.CANCELLED, None),
        (JobStatus.CANCELLING, "config_error", JobStatus.CANCELLED, None),
    ],
)
async def test_what_a_failure_means(
    store: Store, before: JobStatus, code: str | None, after: JobStatus, error: str | None
) -> None:
    record, run_id = await a_run(store)
    async with store.transaction() as session:
        await session.jobs.save(replace(record, job=replace(record.job, status=before)))
    cause = JobError(code, "it broke") if code else None
    await ingest(store, NO_FILES, run_id, entries(RunStateChanged(RunState.FAILED, cause)))
    async with store.snapshot() as reading:
        found = await reading.jobs.find(record.job.id)
    assert found is not None
    assert found.job.status is after
    assert (found.job.error.code if found.job.error else None) == error
    assert (found.run_id, found.job.finished_at is not None) == (None, after.is_terminal)
