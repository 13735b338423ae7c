"""The store: all or nothing, numbered as committed, and never a schema that it does not know."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stored_jobs import add_job, add_run

from gateway.events import Event, LogLine
from gateway.jobs.job import JobError
from gateway.store import Store
from gateway.store._migrations import SCRIPTS, migrate
from gateway.store.checkpoints import CheckpointRecord
from gateway.store.datasets import StoredDataset
from gateway.store.ids import new_id
from gateway.store.requests import KnownRequest
from gateway.store.reward_servers import RegisteredRewardServer
from gateway.store.runs import RunPhase
from plaudit.errors import FailedPreconditionError
from plaudit.types.statuses import JobStatus, RunState

NOON = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)


async def test_it_waits_for_the_disk_and_readers_do_not_wait_for_it(store: Store) -> None:
    async with store.transaction() as session:
        pragmas = {}
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout"):
            rows = list(await session.jobs._connection.execute_fetchall(f"PRAGMA {name}"))
            pragmas[name] = rows[0][0]
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}
    async with store.snapshot() as reading:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await reading.datasets.delete("x")


async def test_a_transaction_is_whole_or_not_at_all_and_seen_after_the_commit(store: Store) -> None:
    told: list[Event] = []
    store.on_commit(told.extend)
    record = await add_job(store)
    assert [event.number for event in told] == [1]
    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as session:
            await session.jobs.save(replace(record, job=replace(record.job, current_step=7)))
            await session.events.append(record.key, record.job.id, LogLine("info", "lost"), NOON)
            raise ZeroDivisionError
    async with store.transaction() as session:
        await session.jobs.save(replace(record, job=replace(record.job, current_step=8)))
        await session.events.append(record.key, record.job.id, LogLine("info", "kept"), NOON)
        async with store.snapshot() as reading:
            before = await reading.jobs.find(record.job.id)
            assert before is not None
            assert before.job.current_step == 0
    async with store.snapshot() as reading:
        after = await reading.jobs.find(record.job.id)
        assert after is not None
        assert after.job.current_step == 8
    # The number of what was rolled back is not lost: there are no gaps.
    assert [(event.number, event.payload) for event in told[1:]] == [(2, LogLine("info", "kept"))]
    assert await store.events_after(1, job_id=None, limit=10) == told[1:]


async def test_a_cancelled_writer_leaves_no_transaction_open_and_tells_what_it_committed(
    store: Store,
) -> None:
    record = await add_job(store)
    told: list[Event] = []
    store.on_commit(told.extend)

    async def write() -> None:
        async with store.transaction() as session:
            for number in range(20):
                await session.events.append(record.key, record.job.id, LogLine("info", str(number)), NOON)

    began = time.monotonic()
    await write()
    whole = time.monotonic() - began
    rng = random.Random(11)
    cancelled = 0
    for _ in range(120):
        task = asyncio.create_task(write())
        await asyncio.sleep(rng.uniform(0, 1.2 * whole))
        task.cancel()
        await asyncio.wait([task])
        cancelled += task.cancelled()
    assert cancelled > 20
    stored = await store.events_after(1, job_id=None, limit=10_000)
    assert stored == told
    assert len(stored) % 20 == 0


async def test_a_job_comes_back_as_it_was_written(store: Store) -> None:
    record = await add_job(store)
    changed = replace(
        record,
        run_id="run_1",
        deaths=2,
        job=replace(
            record.job,
            status=JobStatus.FAILED,
            status_detail="waits",
            error=JobError("out_of_memory", "halve it"),
            current_step=5,
            total_steps=9,
            attempt=3,
            metrics={"loss": -0.5, "kl_div": float("inf")},
            started_at=NOON,
            finished_at=NOON + timedelta(microseconds=1),
            latest_checkpoint_id="job_1@5",
        ),
    )
    async with store.transaction() as session:
        await session.jobs.save(changed)
    async with store.snapshot() as reading:
        assert await reading.jobs.find_by_key(record.key) == changed
        assert await reading.jobs.find("job_unknown") is None
        assert await reading.jobs.needing_dataset("ds_1") == []
    running = await add_job(store, JobStatus.RUNNING)
    async with store.snapshot() as reading:
        assert await reading.jobs.needing_dataset("ds_1") == [running.job.id]
        assert await reading.jobs.needing_reward_server("rs_1") == [running.job.id]
        assert await reading.jobs.needing_reward_server("rs_2") == []
        page = await reading.jobs.page(limit=5, before_key=None, statuses=())
        assert [r.job.id for r in page] == [running.job.id, record.job.id]
        page = await reading.jobs.page(limit=5, before_key=running.key, statuses=())
        assert [r.job.id for r in page] == [record.job.id]
        page = await reading.jobs.page(limit=5, before_key=None, statuses=[JobStatus.RUNNING])
        assert [r.job.id for r in page] == [running.job.id]


async def test_a_journal_entry_is_stored_once(store: Store) -> None:
    record = await add_job(store)
    run_id = await add_run(store, record, 1)
    async with store.transaction() as session:
        run = await session.runs.find(run_id)
        assert run is not None
        await session.runs.append_journal(run, [(1, "x", NOON), (2, "y", NOON)], RunState.RUNNING)
    with pytest.raises(sqlite3.IntegrityError):
        async with store.transaction() as session:
            await session.runs.append_journal(run, [(2, "y", NOON), (3, "z", NOON)], RunState.FAILED)
    async with store.snapshot() as reading:
        run = await reading.runs.find(run_id)
        assert run is not None
        assert (run.last_sequence, run.state, run.phase) == (2, RunState.RUNNING, RunPhase.ASSIGNED)
    # The fencing token of a job is given once.
    with pytest.raises(sqlite3.IntegrityError):
        await add_run(store, record, 1)


async def test_checkpoints_past_the_start_of_a_later_attempt_do_not_count(store: Store) -> None:
    record = await add_job(store)
    await add_run(store, record, 1)
    async with store.transaction() as session:
        for step in (2, 4, 6):
            await session.checkpoints.insert(
                record.key, CheckpointRecord(1, step, f"a1/{step}", 1, "ab", NOON)
            )
        await session.checkpoints.mark_removed(record.key, "a1/6", NOON)
    async with store.snapshot() as reading:
        newest = await reading.checkpoints.newest(record.key, await reading.runs.line(record.key))
        assert newest == CheckpointRecord(1, 4, "a1/4", 1, "ab", NOON)
    await add_run(store, record, 2, from_step=2)
    async with store.snapshot() as reading:
        newest = await reading.checkpoints.newest(record.key, await reading.runs.line(record.key))
        assert newest is not None
        assert newest.step == 2
        assert [c.removed_at for c in await reading.checkpoints.list(record.key)] == [None, None, NOON]


async def test_a_request_id_counts_for_its_lifetime(store: Store) -> None:
    record = await add_job(store)
    async with store.transaction() as session:
        known = KnownRequest(record.key, record.job.id, "ab")
        await session.requests.insert("r", known, NOON)
        assert await session.requests.find("r", since=NOON - timedelta(hours=24)) == known
        assert await session.requests.find("r", since=NOON) is None
        await session.requests.prune(before=NOON)
        assert await session.requests.find("r", since=NOON - timedelta(hours=24)) is None


def test_a_request_id_of_an_older_version_counts_on(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite3"
    migrate(path, SCRIPTS[:12])
    with closing(sqlite3.connect(path)) as old:
        needed = [
            name
            for _, name, _, needed, default, key in old.execute("PRAGMA table_info(jobs)")
            if needed and default is None and not key and name != "id"
        ]
        old.execute(
            f"INSERT INTO jobs (id, {', '.join(needed)}) VALUES ('job_1', {', '.join('1' * len(needed))})"
        )
        old.execute("INSERT INTO requests VALUES ('r', 1, 'ab', 7)")
        old.commit()
    migrate(path)
    with closing(sqlite3.connect(path)) as new:
        assert new.execute("SELECT * FROM requests").fetchall() == [("r", 1, "job_1", "ab", 7)]
        new.execute("PRAGMA foreign_keys = ON")
        new.execute("DELETE FROM jobs")
        assert new.execute("SELECT * FROM requests").fetchall() == [("r", None, "job_1", "ab", 7)]


async def test_datasets_and_reward_servers_by_id_before_name(store: Store) -> None:
    first = StoredDataset(
        "ds_a", "numbers", "upload", 3, ("b", "a"), ("grpo",), 10, "aa", "datasets/aa.parquet", NOON
    )
    second = replace(first, id="ds_b", name="ds_a", sha256="bb")
    server = RegisteredRewardServer("rs_a", "judge", ("127.0.0.1:1", "127.0.0.1:2"), False, NOON)
    async with store.transaction() as session:
        await session.datasets.insert(first)
        await session.datasets.insert(second)
        await session.reward_servers.insert(server)
        await session.reward_servers.insert(replace(server, id="rs_b", name="builtin", configured=True))
    async with store.snapshot() as reading:
        assert await reading.datasets.find("numbers") == first
        assert await reading.datasets.find("ds_a") == first
        assert await reading.datasets.find("none") is None
        assert [d.id for d in await reading.datasets.list(limit=9)] == ["ds_b", "ds_a"]
        assert [d.id for d in await reading.datasets.list(limit=9, after="ds_b")] == ["ds_a"]
        assert await reading.reward_servers.find("judge") == server
        assert [s.name for s in await reading.reward_servers.list()] == ["builtin", "judge"]
    async with store.transaction() as session:
        await session.reward_servers.update(replace(server, addresses=("127.0.0.1:3",), configured=True))
        await session.reward_servers.delete("rs_b")
        await session.datasets.delete("ds_b")
        assert await session.reward_servers.list() == [
            replace(server, addresses=("127.0.0.1:3",), configured=True)
        ]
        assert await session.datasets.find("ds_b") is None


def test_a_newer_schema_is_refused_and_an_older_one_copied_before_it_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite3"
    migrate(path, SCRIPTS[:1])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO trainers VALUES ('t', 'here', 5)")
        identity = connection.execute("SELECT store_id FROM identity").fetchall()
    newer = [*SCRIPTS[:1], "ALTER TABLE trainers ADD COLUMN labels TEXT NOT NULL DEFAULT '';"]
    migrate(path, newer)
    migrate(path, newer)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM trainers").fetchall() == [("t", "here", 5, "")]
        assert connection.execute("SELECT store_id FROM identity").fetchall() == identity
        assert connection.execute("SELECT version FROM migrations").fetchall() == [(1,), (2,)]
    with closing(sqlite3.connect(tmp_path / "s.sqlite3.v1.backup")) as copy:
        assert copy.execute("SELECT * FROM trainers").fetchall() == [("t", "here", 5)]
    with pytest.raises(FailedPreconditionError, match="schema version 2") as refused:
        migrate(path, SCRIPTS[:1])
    assert refused.value.reason == "SCHEMA_TOO_NEW"


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite3"
    migrate(path, SCRIPTS[:1])
    broken = [*SCRIPTS[:1], "CREATE TABLE half (a INTEGER); INSERT INTO nowhere VALUES (1);"]
    with pytest.raises(sqlite3.OperationalError):
        migrate(path, broken)
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        assert "half" not in tables
        assert connection.execute("SELECT version FROM migrations").fetchall() == [(1,)]


def test_ids_sort_in_the_order_of_their_making() -> None:
    ids = [new_id("job") for _ in range(5000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(len(i) == 4 + 26 for i in ids)


async def test_a_job_whose_spec_a_newer_rule_would_refuse_is_still_read(store: Store) -> None:
    record = await add_job(store)
    async with store.transaction() as session:
        await session.jobs._connection.execute(
            "UPDATE jobs SET spec = json_set(spec, '$.hyperparameters.learning_rate', 7)"
        )
    async with store.snapshot() as session:
        read = await session.jobs.find(record.job.id)
        listed = await session.jobs.page(limit=10, before_key=None, statuses=())
    assert read is not None
    assert read.job.spec.hyperparameters.learning_rate == 7
    assert [job.job.id for job in listed] == [record.job.id]
