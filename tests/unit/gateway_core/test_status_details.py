"""What a job waits for is kept as it is now; watchers hear less of it."""

from stored_jobs import add_job

from gateway.events import StatusChanged
from gateway.jobs.details import StatusDetails
from gateway.store import Store


async def told(store: Store, details: list[str]) -> list[str]:
    """What events say after the job had these details, one after the other, with no pause in between."""
    record = await add_job(store)
    kept = StatusDetails(store, repeat_seconds=0.0)
    for detail in details:
        await kept.set(record.key, None, detail)
        async with store.snapshot() as session:
            found = await session.jobs.find(record.job.id)
        assert found is not None and found.job.status_detail == detail
    async with store.snapshot() as session:
        events = await session.events.after(0, job_id=record.job.id, limit=100)
    payloads = [event.payload for event in events]
    return [payload.detail for payload in payloads if isinstance(payload, StatusChanged) and payload.detail]


async def test_how_far_an_evaluation_is_is_no_event(store: Store) -> None:
    outstanding = [f"3 of 64 completions outstanding for {seconds} s" for seconds in (10, 20, 30)]
    assert await told(store, outstanding) == outstanding
    counted = [f"evaluating after step 0: {done} of 3000 completions" for done in (0, 8, 16)]
    assert await told(store, counted) == counted[:1]
