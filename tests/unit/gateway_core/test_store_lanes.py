"""Reads that take long: nothing else waits for them, they take turns, and one that is abandoned ends."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest
from stored_jobs import add_job

from gateway.store import Store
from gateway.store._lanes import Bounds, Lane
from plaudit.errors import ResourceExhaustedError

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT began() UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def spin_until(condition: asyncio.Event | None = None, *, turns: int = 20) -> None:
    """Lets every task go on that can."""
    if condition is not None:
        await condition.wait()
    for _ in range(turns):
        await asyncio.sleep(0)


async def test_nothing_else_waits_for_scans(store: Store) -> None:
    record = await add_job(store)
    async with AsyncExitStack() as held:
        for _ in range(store._scanners.free):
            await held.enter_async_context(store.scan("a"))
        third = asyncio.create_task(find_by_scan(store, record.job.id))
        await spin_until()
        assert store._scanners.waiting == 1
        async with store.snapshot() as session:
            assert await session.jobs.find(record.job.id) == record
        assert await store.newest_event() == 1
        assert len(await store.events_after(0, job_id=None, limit=10)) == 1
        assert not third.done()
    assert await third == record


async def find_by_scan(store: Store, job_id: str) -> object:
    async with store.scan("a") as session:
        return await session.jobs.find(job_id)


async def test_who_waits_takes_turns_and_who_gives_up_leaves_the_queue(store: Store) -> None:
    lane = store._scanners
    taken = [await lane.take("x") for _ in range(lane.free)]
    order: list[str] = []

    async def take(name: str) -> None:
        reader = await lane.take(name[0])
        order.append(name)
        lane.give_back(reader)

    waiting = {}
    for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        waiting[name] = asyncio.create_task(take(name))
        await spin_until()
    assert lane.waiting == 7
    waiting["a2"].cancel()
    await spin_until()
    assert lane.waiting == 6
    # One that is cancelled in the turn in which a reader comes free is passed over.
    waiting["c1"].cancel()
    for reader in taken[:-1]:
        lane.give_back(reader)
    lane.give_back(taken[-1])
    await asyncio.wait(waiting.values())
    assert order == ["a1", "b1", "a3", "b2", "a4"]
    assert (lane.waiting, lane.free) == (0, len(taken))


async def test_who_is_cancelled_with_a_reader_in_hand_gives_it_back(store: Store) -> None:
    lane = store._scanners
    taken = [await lane.take() for _ in range(lane.free)]
    waiting = asyncio.create_task(lane.take())
    await spin_until()
    lane.give_back(taken.pop())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert lane.free == 1


async def test_no_more_of_one_wait_than_may(store: Store) -> None:
    reader = await store._scanners.take()
    lane = Lane([reader], Bounds(most_waiting=2, longest_wait_seconds=60.0))
    assert await lane.take("a") is reader
    waiting = [asyncio.create_task(lane.take("a")) for _ in range(2)]
    await spin_until()
    with pytest.raises(ResourceExhaustedError, match="2 requests like this one wait already") as refused:
        await lane.take("a")
    assert (refused.value.reason, refused.value.retry_after) == ("TOO_MANY_READS", 2.0)
    other = asyncio.create_task(lane.take("b"))
    await spin_until()
    assert lane.waiting == 3
    for task in (*waiting, other):
        task.cancel()
    await asyncio.wait((*waiting, other))
    assert lane.waiting == 0


async def test_none_waits_for_ever(store: Store) -> None:
    reader = await store._scanners.take()
    lane = Lane([reader], Bounds(most_waiting=2, longest_wait_seconds=0.05))
    assert await lane.take("a") is reader
    with pytest.raises(ResourceExhaustedError, match=r"were read for 0\.05 s"):
        await lane.take("a")
    assert lane.waiting == 0
    lane.give_back(reader)
    assert await lane.take("b") is reader


async def test_what_an_abandoned_scan_asked_ends_and_its_connection_is_clean(store: Store) -> None:
    record = await add_job(store)
    readers = store._scanners.free
    loop = asyncio.get_running_loop()
    for _ in range(readers):
        began = asyncio.Event()

        def tell(began: asyncio.Event = began) -> int:
            loop.call_soon_threadsafe(began.set)
            return 1

        async def read(tell: object = tell) -> None:
            async with store.scan("a") as session:
                connection = session.jobs._connection
                await connection.create_function("began", 0, tell)  # type: ignore[arg-type]
                # Of what is asked at once, the first runs, and the others wait behind it in its thread.
                await asyncio.gather(*(connection.execute_fetchall(ENDLESS) for _ in range(5)))

        reading = asyncio.create_task(read())
        await spin_until(began)
        assert store._scanners.free == readers - 1
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert store._scanners.free == readers
    async with AsyncExitStack() as stack:
        for _ in range(readers):
            session = await stack.enter_async_context(store.scan("a"))
            assert await session.jobs.find(record.job.id) == record


async def test_a_read_that_blocks_holds_up_its_own_lane_only(store: Store) -> None:
    record = await add_job(store)
    release = threading.Event()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def block() -> int:
        loop.call_soon_threadsafe(began.set)
        release.wait(60)
        return 1

    async def read() -> None:
        async with store.scan("a") as session:
            await session.jobs._connection.create_function("blocked", 0, block)
            await session.jobs._connection.execute_fetchall("SELECT blocked()")

    reading = [asyncio.create_task(read()) for _ in range(store._scanners.free + 3)]
    try:
        await began.wait()
        async with store.snapshot() as session:
            assert await session.jobs.find(record.job.id) == record
        await add_job(store)
    finally:
        release.set()
    await asyncio.gather(*reading)
