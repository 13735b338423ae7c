"""However the entries of a journal come in, and however often, the alerts are the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stored_jobs import add_job, add_run

from gateway.events import Alert, LogLine
from gateway.jobs.ingest import ingest
from gateway.jobs.journal import JournalEntry, JournalEvent, RunStateChanged, StepCompleted
from gateway.store import Store
from plaudit.errors import InternalError
from plaudit.types.statuses import JobStatus, RunState

NO_FILES = Path("/nonexistent")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
COLLAPSE = range(41, 121)
HELD_OUT = {20: 0.5, 40: 0.5, 60: 0.5, 80: 0.2, 100: 0.1, 120: 0.1}


def metrics(step: int) -> dict[str, float]:
    is_collapsed = step in COLLAPSE
    values = {
        "reward_mean": 0.0 if is_collapsed else 0.5,
        "reward_std_batch": 0.0 if is_collapsed else 0.5,
        "policy_entropy": 0.01 if is_collapsed else 1.0,
        "zero_std_group_fraction": 1.0 if is_collapsed else 0.1,
    }
    if step in HELD_OUT:
        values["eval/reward_mean"] = HELD_OUT[step]
    return values


def journal(last: int) -> list[JournalEntry]:
    events: list[JournalEvent] = [RunStateChanged(RunState.STARTING), RunStateChanged(RunState.RUNNING)]
    events += [StepCompleted(step, 400, metrics(step)) for step in range(1, last + 1)]
    return [JournalEntry(n, NOON + timedelta(seconds=n), event) for n, event in enumerate(events, start=1)]


async def a_run(store: Store) -> tuple[str, str]:
    record = await add_job(store)
    run_id = await add_run(store, record, 1)
    async with store.transaction() as session:
        job = replace(record.job, status=JobStatus.PROVISIONING, attempt=1)
        await session.jobs.save(replace(record, run_id=run_id, job=job))
    return record.job.id, run_id


async def told(store: Store, job_id: str) -> list[tuple[str, int]]:
    events = [e.payload for e in await store.events_after(0, job_id=job_id, limit=10_000)]
    found = []
    for event in events:
        if isinstance(event, Alert):
            found.append((event.kind, event.step))
        elif isinstance(event, LogLine):
            found.append((event.message.partition(":")[0], 0))
    return found


EXPECTED = [("policy_collapse", 49), ("the alert policy_collapse is over", 0)]
"""As in the tests of the detectors: with the 49th step, and over with the 123rd."""


@pytest.mark.parametrize("size", [1, 7, 256])
async def test_batches_of_any_size_that_come_twice(store: Store, size: int) -> None:
    job_id, run_id = await a_run(store)
    entries = journal(150)
    for start in range(0, len(entries), size):
        await ingest(store, NO_FILES, run_id, entries[max(0, start - 3) : start + size])
    assert await told(store, job_id) == EXPECTED
    async with store.snapshot() as session:
        record = await session.jobs.find(job_id)
    assert record is not None
    assert [(a.kind, a.step, a.ended_step) for a in record.job.alerts] == [("policy_collapse", 49, 123)]


async def test_a_batch_that_is_not_stored_leaves_no_alert(store: Store) -> None:
    job_id, run_id = await a_run(store)
    entries = journal(60)
    await ingest(store, NO_FILES, run_id, entries[:45])
    with pytest.raises(RuntimeError, match="the disk is gone"):
        async with store.transaction() as session:
            await session.alerts.going_on(1)
            raise RuntimeError("the disk is gone")
    with pytest.raises(InternalError):
        await ingest(store, NO_FILES, run_id, [*entries[45:55], entries[56]])
    assert await told(store, job_id) == []
    await ingest(store, NO_FILES, run_id, entries[45:])
    assert await told(store, job_id) == EXPECTED[:1]
