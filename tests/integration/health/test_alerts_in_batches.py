"""However the entries of a journal come in, and however often, the alerts are the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stored_jobs import add_job, add_run

from gateway.events import Alert, LogLine
from gateway.jobs.ingest import ingest
from gateway.jobs.journal import (
    EvaluationFinished,
    JournalEntry,
    JournalEvent,
    RunStateChanged,
    StepCompleted,
)
from gateway.store import Store
from plaudit.errors import InternalError
from plaudit.types.statuses import JobStatus, RunState

NO_FILES = Path("/nonexistent")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
COLLAPSE = range(41, 121)
HELD_OUT = {20: 0.5, 40: 0.5, 60: 0.5, 80: 0.2, 100: 0.1, 120: 0.1}


def metrics(step: int) -> dict[str, float]:
    is_collapsed = step in COLLAPSE
    return {
        "reward_mean": 0.0 if is_collapsed else 0.5,
        "reward_std_batch": 0.0 if is_collapsed else 0.5,
        "policy_entropy": 0.01 if is_collapsed else 1.0,
        "zero_std_group_fraction": 1.0 if is_collapsed else 0.1,
    }


def journal(last: int) -> list[JournalEntry]:
    events: list[JournalEvent] = [RunStateChanged(RunState.STARTING), RunStateChanged(RunState.RUNNING)]
    for step in range(1, last + 1):
        events.append(StepCompleted(step, 400, metrics(step)))
        if step in HELD_OUT:
            values = {
                "eval/reward_mean": HELD_OUT[step],
                "eval/reward/exact_answer/canary_pass_fraction": 0.0,
            }
            if step == 60:
                values["eval/reward/exact_answer/canary_pass_fraction"] = 0.3
            events.append(EvaluationFinished(step, values, None))
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


EXPECTED = [
    ("policy_collapse", 49),
    ("reward_fooled", 60),
    ("the alert reward_fooled of exact_answer is over", 0),
    ("the alert policy_collapse is over", 0),
]
"""As in the tests of the detectors: with the 49th step, and over with the 123rd; canaries pass after the 60th
alone.
"""


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
    assert sorted((a.kind, a.step, a.ended_step) for a in record.job.alerts) == [
        ("policy_collapse", 49, 123),
        ("reward_fooled", 60, 80),
    ]


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
    assert await told(store, job_id) == EXPECTED[:2]


async def test_a_held_out_reward_that_falls_is_told_with_the_evaluation_that_shows_it(store: Store) -> None:
    job_id, run_id = await a_run(store)
    events: list[JournalEvent] = [RunStateChanged(RunState.RUNNING)]
    held_out = {0: 0.4, 2: 0.5, 4: 0.6, 6: 0.6, 8: 0.55, 10: 0.3}
    for step in range(11):
        if step:
            events.append(StepCompleted(step, 10, {"reward_mean": step / 10, "reward_std_batch": 0.5}))
        if step in held_out:
            events.append(EvaluationFinished(step, {"eval/reward_mean": held_out[step]}, None))
    # After the last step: the best two, 0.6, became 0.425, and the rollouts up to there went from 0.3 to 0.5.
    for start in range(0, len(events), 5):
        entries = [JournalEntry(n, NOON, event) for n, event in enumerate(events, start=1)]
        await ingest(store, NO_FILES, run_id, entries[start : start + 5])
    assert await told(store, job_id) == [("reward_hacking", 10)]
