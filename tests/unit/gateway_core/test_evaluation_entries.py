"""Evaluations of a run in the store: whose they are, and that nobody takes them for steps."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from stored_jobs import add_job, add_run

from gateway.events import StepMetrics
from gateway.jobs.completions import CompletionReader
from gateway.jobs.ingest import ingest
from gateway.jobs.journal import (
    CompletionsWritten,
    EvaluationFinished,
    JournalEntry,
    JournalEvent,
    StepCompleted,
)
from gateway.jobs.series import checked_query, read_series
from gateway.store import Store
from gateway.store.jobs import JobRecord

NO_FILES = Path("/nonexistent")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def attempt(
    store: Store, record: JobRecord, number: int, from_step: int, *events: JournalEvent
) -> None:
    """Takes in the journal of one attempt, which the job then goes by."""
    run_id = await add_run(store, record, number, from_step)
    async with store.transaction() as session:
        stored = await session.jobs.find(record.job.id)
        assert stored is not None
        await session.jobs.save(replace(stored, run_id=run_id))
    entries = [JournalEntry(n, NOON, event) for n, event in enumerate(events, start=1)]
    await ingest(store, NO_FILES, run_id, entries)


def step(number: int) -> StepCompleted:
    return StepCompleted(number, 6, {"reward_mean": number / 10})


def evaluation(after: int, value: float, uri: str = "") -> EvaluationFinished:
    written = CompletionsWritten(after, uri, 1, 10, "ab") if uri else None
    return EvaluationFinished(after, {"eval/reward_mean": value}, written)


async def series(store: Store, record: JobRecord, name: str) -> list[tuple[int, float]]:
    async with store.snapshot() as session:
        stored = await session.jobs.find(record.job.id)
        assert stored is not None
        found = await read_series(session, stored, checked_query([name], 0, None, 0))
    return [(row.step, row.values[name]) for row in found.rows]


async def test_an_evaluation_that_a_checkpoint_owed_stands_where_its_step_does(store: Store) -> None:
    """Attempt 1 pauses after step 4, before it is evaluated; attempt 2 does that first; attempt 3 goes on
    from step 2, as if 2 had never been, and evaluates step 4 itself.
    """
    record = await add_job(store)
    await attempt(
        store, record, 1, 0, evaluation(0, 0.1), *map(step, (1, 2)), evaluation(2, 0.2), *map(step, (3, 4))
    )
    assert await series(store, record, "eval/reward_mean") == [(0, 0.1), (2, 0.2)]
    await attempt(store, record, 2, 4, evaluation(4, 0.4), *map(step, (5, 6)), evaluation(6, 0.6))
    assert await series(store, record, "eval/reward_mean") == [(0, 0.1), (2, 0.2), (4, 0.4), (6, 0.6)]
    assert await series(store, record, "reward_mean") == [(n, n / 10) for n in range(1, 7)]
    await attempt(store, record, 3, 2, *map(step, (3, 4)), evaluation(4, 0.44))
    assert await series(store, record, "eval/reward_mean") == [(0, 0.1), (2, 0.2), (4, 0.44)]


async def test_a_run_that_starts_anew_is_evaluated_anew(store: Store) -> None:
    record = await add_job(store)
    await attempt(store, record, 1, 0, evaluation(0, 0.1), step(1))
    await attempt(store, record, 2, 0, evaluation(0, 0.2))
    assert await series(store, record, "eval/reward_mean") == [(0, 0.2)]


async def test_it_is_told_and_shown_and_moves_no_step(store: Store) -> None:
    record = await add_job(store)
    await attempt(store, record, 1, 0, step(1), evaluation(1, 0.5))
    async with store.snapshot() as session:
        stored = await session.jobs.find(record.job.id)
    assert stored is not None
    assert stored.job.metrics == {"reward_mean": 0.1, "eval/reward_mean": 0.5}
    assert (stored.job.current_step, stored.job.total_steps) == (1, 6)
    told = [e.payload for e in await store.events_after(0, job_id=record.job.id, limit=100)]
    assert [p for p in told if isinstance(p, StepMetrics)] == [
        StepMetrics(1, 1, {"reward_mean": 0.1}, 6),
        StepMetrics(1, 1, {"eval/reward_mean": 0.5}),
    ]


async def test_its_completions_are_kept_apart_from_those_that_were_learnt_from(
    store: Store, tmp_path: Path
) -> None:
    def write(uri: str, text: str) -> None:
        row = {
            "step": 1, "attempt": 1, "group_id": "g", "completion_id": "c", "prompt_text": "2 + 2",
            "completion_text": text, "token_count": 1, "truncated": False, "reward": 1.0, "advantage": None,
            "outcomes": json.dumps([]),
        }  # fmt: skip
        (tmp_path / uri).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / uri)

    learnt, held_out = "jobs/j/completions/step-000001.parquet", "jobs/j/evaluations/step-000001.parquet"
    write(learnt, "four")
    write(held_out, "five")
    record = await add_job(store)
    file = CompletionsWritten(1, learnt, 1, 10, "ab")
    await attempt(store, record, 1, 0, file, step(1), evaluation(1, 0.5, held_out))
    reader = CompletionReader(tmp_path)
    async with store.snapshot() as session:
        line = await session.runs.line(record.key)
        of_steps = await session.completion_files.on_line(record.key, line)
        of_evaluations = await session.evaluation_files.on_line(record.key, line)
    assert [c.completion_text for c in (await reader.page(of_steps, None, 10)).items] == ["four"]
    assert [c.completion_text for c in (await reader.page(of_evaluations, None, 10)).items] == ["five"]
