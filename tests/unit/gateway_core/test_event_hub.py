"""Watching: from any cursor on each event comes once, in order, and a slow reader costs nobody anything."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

import pytest
from stored_jobs import add_job

from gateway.event_hub import EventHub
from gateway.events import Bookmark, Event, LogLine, StatusChanged, StepMetrics
from gateway.store import Store
from plaudit.errors import InvalidArgumentError, NotFoundError, OutOfRangeError, UnavailableError
from plaudit.types.statuses import JobStatus

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def hub_of(store: Store, **options: float) -> EventHub:
    hub = EventHub(store, await store.newest_event(), **options)  # type: ignore[arg-type]
    store.on_commit(hub.publish)
    return hub


async def tell(store: Store, record, *payloads) -> None:
    async with store.transaction() as session:
        for payload in payloads:
            await session.events.append(record.key, record.job.id, payload, NOON)


async def collect(events, count: int | None = None) -> list[Event]:
    found: list[Event] = []
    async with asyncio.timeout(20):
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


def steps(first: int, last: int) -> list[StepMetrics]:
    return [StepMetrics(step, 1, {"loss": 1.0}, 9) for step in range(first, last + 1)]


async def test_from_the_start_to_the_end_of_a_job(store: Store) -> None:
    hub = await hub_of(store)
    record, other = await add_job(store), await add_job(store)
    reading = asyncio.create_task(collect(await hub.watch(record.job.id)))
    for step in steps(1, 5):
        await tell(store, record, step)
        await tell(store, other, LogLine("info", "not ours"))
        await asyncio.sleep(0)
    await tell(store, record, StatusChanged(JobStatus.COMPLETED))
    events = await reading
    assert [e.payload for e in events] == [
        StatusChanged(JobStatus.QUEUED),
        *steps(1, 5),
        StatusChanged(JobStatus.COMPLETED),
    ]
    assert {e.job_id for e in events} == {record.job.id}
    # The same from the store, by a gateway that was started since.
    assert await collect(await (await hub_of(store)).watch(record.job.id)) == events
    # From every cursor on: the rest; after the end: nothing, at once.
    for index, event in enumerate(events):
        assert await collect(await hub.watch(record.job.id, event.cursor)) == events[index + 1 :]


async def test_a_failed_job_that_was_resumed_goes_on(store: Store) -> None:
    hub = await hub_of(store)
    record = await add_job(store)
    failed_and_resumed = (StatusChanged(JobStatus.FAILED), StatusChanged(JobStatus.QUEUED))
    await tell(store, record, *failed_and_resumed, *steps(1, 2))
    reading = asyncio.create_task(collect(await hub.watch(record.job.id)))
    await asyncio.sleep(0.05)
    assert not reading.done()
    await tell(store, record, StatusChanged(JobStatus.CANCELLED))
    kinds = ["status_changed"] * 3 + ["step_metrics"] * 2 + ["status_changed"]
    assert [e.kind for e in await reading] == kinds


async def test_all_jobs_only_new_events_and_without_an_end(store: Store) -> None:
    hub = await hub_of(store)
    first, second = await add_job(store), await add_job(store)
    events = await hub.watch(None)
    await tell(store, first, StatusChanged(JobStatus.COMPLETED))
    await tell(store, second, LogLine("info", "b"))
    found = await collect(events, 2)
    assert [(e.job_id, e.number) for e in found] == [(first.job.id, 3), (second.job.id, 4)]
    assert await collect(await hub.watch(None, found[0].cursor), 1) == [found[1]]


async def test_kinds_are_filtered_and_the_end_is_seen_all_the_same(store: Store) -> None:
    hub = await hub_of(store)
    record = await add_job(store)
    await tell(store, record, *steps(1, 3), LogLine("info", "x"), StatusChanged(JobStatus.COMPLETED))
    found = await collect(await hub.watch(record.job.id, kinds=["log_line"]))
    assert [e.payload for e in found] == [LogLine("info", "x")]


async def test_readers_that_lag_behind_the_tail_lose_nothing(store: Store) -> None:
    """Forty readers of unequal speed, a tail of eight events, and a writer that waits for none of them."""
    hub = await hub_of(store, tail_length=8)
    record, other = await add_job(store), await add_job(store)
    rng = random.Random(5)

    async def read(pause: float) -> list[int]:
        found = []
        async for event in await hub.watch(record.job.id):
            if isinstance(event.payload, StepMetrics):
                found.append(event.payload.step)
            if rng.random() < pause:
                await asyncio.sleep(0.002)
        return found

    readers = [asyncio.create_task(read(n / 40)) for n in range(40)]
    for step in steps(1, 300):
        await tell(store, record, step)
        await tell(store, other, LogLine("info", "y"))
    await tell(store, record, StatusChanged(JobStatus.COMPLETED))
    async with asyncio.timeout(30):
        for found in await asyncio.gather(*readers):
            assert found == list(range(1, 301))


async def test_a_reader_that_has_stopped_holds_nobody_up(store: Store) -> None:
    hub = await hub_of(store, tail_length=4)
    record = await add_job(store)
    stopped = await hub.watch(record.job.id)
    first = await anext(stopped)
    assert first.number == 1
    await tell(store, record, *steps(1, 200), StatusChanged(JobStatus.COMPLETED))
    assert len(await collect(await hub.watch(record.job.id))) == 202
    assert len(hub._tail._events) <= 8
    assert [e.number for e in await collect(stopped)] == list(range(2, 203))


async def test_bookmarks_carry_a_cursor_that_moves_on_whatever_the_filter(store: Store) -> None:
    hub = await hub_of(store, bookmark_seconds=0.05)
    record, other = await add_job(store), await add_job(store)
    watching = await hub.watch(record.job.id, kinds=["alert"])
    await tell(store, other, LogLine("info", "a"), LogLine("info", "b"))
    found = await collect(watching, 2)
    assert [type(e.payload) for e in found] == [Bookmark, Bookmark]
    assert found[1].number == await store.newest_event() == 4
    await tell(store, record, LogLine("info", "c"))
    assert [e.payload for e in await collect(await hub.watch(record.job.id, found[1].cursor), 1)] == [
        LogLine("info", "c")
    ]


async def test_what_is_refused(store: Store) -> None:
    hub = await hub_of(store)
    record = await add_job(store)
    with pytest.raises(NotFoundError, match="job_unknown"):
        await hub.watch("job_unknown")
    for junk in ("junk", "1", f"{store.store_id}-", f"{store.store_id}--1", f"{store.store_id}-01", "é-1"):
        with pytest.raises(InvalidArgumentError) as refused:
            await hub.watch(record.job.id, junk)
        assert [v.field for v in refused.value.violations] == ["after_cursor"]
    with pytest.raises(InvalidArgumentError) as refused:
        await hub.watch(record.job.id, "junk", ["status_changed", "nonsense"])
    assert [v.field for v in refused.value.violations] == ["kinds", "after_cursor"]
    for cursor in (f"{store.store_id}-99", "00000000-1"):
        with pytest.raises(OutOfRangeError) as expired:
            await hub.watch(record.job.id, cursor)
        assert expired.value.reason == "CURSOR_EXPIRED"


async def test_a_gateway_that_drains_sends_readers_away_to_come_back(store: Store) -> None:
    hub = await hub_of(store)
    record = await add_job(store)
    reading = asyncio.create_task(collect(await hub.watch(record.job.id)))
    await asyncio.sleep(0.05)
    hub.close()
    with pytest.raises(UnavailableError) as ended:
        await reading
    assert ended.value.retry_after is not None
