"""A gateway's own absence: time in which its event loop did not turn, whatever the store took."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from stored_jobs import add_job, add_run

from gateway.jobs import leases as leases_module
from gateway.jobs.details import StatusDetails
from gateway.jobs.leases import Leases, _PresenceClock
from gateway.store import Store
from plaudit.types.statuses import JobStatus


class Time:
    """The event loop's, as a test says."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_only_a_loop_that_did_not_turn_was_away() -> None:
    time = Time()
    clock = _PresenceClock(time)
    assert clock.now() == 1000.0
    for _ in range(100):
        time.seconds += 0.6
        clock.now()
    assert clock.now() == pytest.approx(1060.0)
    time.seconds += 63.5
    # All but the tenth of a second after which it would have been looked at.
    assert clock.now() == pytest.approx(1060.1)
    time.seconds += 1.0
    assert clock.now() == pytest.approx(1061.1)


async def test_a_lost_trainer_is_noticed_though_a_read_took_long(store: Store) -> None:
    record = await add_job(store)
    run_id = await add_run(store, record, 1)
    running = replace(record.job, status=JobStatus.RUNNING, attempt=1)
    async with store.transaction() as session:
        await session.jobs.save(replace(record, run_id=run_id, job=running))
    time = Time()
    leases = Leases(store, StatusDetails(store), overdue_seconds=2.0, lost_seconds=30.0)
    leases._clock = _PresenceClock(time)
    await leases.renew("trainer_1", "127.0.0.1:1")
    async with AsyncExitStack() as held:
        for _ in range(store._readers.free):
            await held.enter_async_context(store.snapshot())
        checking = asyncio.create_task(leases.check())
        for _ in range(5):
            await asyncio.sleep(0)
        assert store._readers.waiting == 1
        for _ in range(62):
            time.seconds += 0.5
            leases._clock.now()
    await checking
    async with store.snapshot() as session:
        found = await session.jobs.find(record.job.id)
    assert found is not None
    assert found.job.status is JobStatus.QUEUED
    assert "attempt 1 was lost" in found.job.status_detail


async def test_the_clock_is_looked_at_while_a_read_is_held(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "_LOOK_SECONDS", 0.001)
    looks = asyncio.Semaphore(0)

    class Counting(_PresenceClock):
        def now(self) -> float:
            looks.release()
            return super().now()

    leases = Leases(store, StatusDetails(store), overdue_seconds=2.0, lost_seconds=30.0)
    leases._clock = Counting(asyncio.get_running_loop().time)
    async with AsyncExitStack() as held:
        for _ in range(store._readers.free):
            await held.enter_async_context(store.snapshot())
        checking = asyncio.create_task(leases.check())
        looking = asyncio.create_task(leases.run())
        for _ in range(5):
            await looks.acquire()
        assert not checking.done()
    await checking
    looking.cancel()
