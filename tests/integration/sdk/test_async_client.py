"""The asyncio client on a real gateway: the same answers, errors and retries as the blocking one."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from sdk_gateway import JOB
from stack import Stack

from plaudit import AsyncClient, Client
from plaudit.client import AsyncJob, Job, models
from plaudit.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from plaudit.types.statuses import JobStatus


@pytest.fixture
async def client(gateway: Stack) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.grpc_address) as made:
        yield made


@pytest.fixture
def blocking_client(gateway: Stack) -> Iterator[Client]:
    with gateway.client() as made:
        yield made


async def test_both_clients_see_the_same(client: AsyncClient, blocking_client: Client) -> None:
    made = await client.training_jobs.submit(JOB)
    seen = blocking_client.training_jobs.get(made.id)
    assert (type(made), type(seen)) == (AsyncJob, Job)
    assert (seen.refresh().id, (await made.refresh()).id) == (made.id, made.id)
    assert (seen.id, seen.spec, seen.created_at) == (made.id, made.spec, made.created_at)
    cancelled = await made.cancel()
    assert cancelled.status is JobStatus.CANCELLED
    there = [event.body async for event in client.training_jobs.events(made.id)]
    assert there == [event.body for event in blocking_client.training_jobs.events(made.id)]
    assert [line async for line in client.training_jobs.logs(made.id)] == list(
        blocking_client.training_jobs.logs(made.id)
    )


async def test_pages_are_fetched_as_they_are_needed(
    client: AsyncClient, blocking_client: Client, tmp_path: Any
) -> None:
    file = tmp_path / "many.jsonl"
    file.write_text("".join(f'{{"prompt": "row {n}"}}\n' for n in range(250)))
    dataset = await client.datasets.upload(file)
    rows = [row.prompt async for row in client.datasets.rows(dataset.id)]
    assert rows == [row.prompt for row in blocking_client.datasets.rows(dataset.id)]
    assert rows == [f"row {n}" for n in range(250)]
    assert [row.number async for row in client.datasets.rows(dataset.id, limit=120)] == list(range(120))
    jobs = [await client.training_jobs.submit(JOB) for _ in range(3)]
    listed = [job.id async for job in client.training_jobs.list()]
    assert listed[:3] == [job.id for job in reversed(jobs)]
    for job in jobs:
        await job.cancel()


async def test_errors_are_the_same(client: AsyncClient, blocking_client: Client) -> None:
    wrong = {**JOB, "base_model": "", "hyperparameters": {"learning_rate": -1.0}}
    with pytest.raises(InvalidArgumentError) as there:
        await client.training_jobs.submit(wrong)
    with pytest.raises(InvalidArgumentError) as here:
        blocking_client.training_jobs.submit(wrong)
    assert there.value.violations == here.value.violations
    assert [v.field for v in there.value.violations] == ["base_model", "hyperparameters.learning_rate"]
    with pytest.raises(NotFoundError, match="job_nowhere"):
        await client.training_jobs.get("job_nowhere")
    with pytest.raises(NotFoundError):
        async for _ in client.training_jobs.watch("job_nowhere"):
            pass
    with pytest.raises(InvalidArgumentError, match="address"):
        AsyncClient("nonsense")


async def test_a_gateway_that_is_not_there_is_unavailable() -> None:
    async with AsyncClient("127.0.0.1:1", retry_seconds=0.2) as client:
        with pytest.raises(UnavailableError, match=r"the gateway at 127\.0\.0\.1:1 cannot be reached"):
            await client.training_jobs.get("job_1")


async def test_many_calls_wait_at_once(client: AsyncClient) -> None:
    request_id = str(uuid.uuid4())
    made = await asyncio.gather(*(client.training_jobs.submit(JOB, request_id=request_id) for _ in range(20)))
    assert len({job.id for job in made}) == 1
    await made[0].cancel()


async def test_wait_ends_with_the_job_and_tells_how_it_goes(client: AsyncClient) -> None:
    job = await client.training_jobs.submit(JOB)
    seen: list[JobStatus] = []
    told = asyncio.Event()

    def tell(now: models.TrainingJob) -> None:
        seen.append(now.status)
        told.set()

    waiting = asyncio.create_task(job.wait(on_progress=tell, timeout=60))
    await told.wait()
    await job.cancel()
    done = await waiting
    assert done.status is JobStatus.CANCELLED
    assert (seen[0], seen[-1]) == (JobStatus.QUEUED, JobStatus.CANCELLED)


async def test_wait_gives_up_with_an_error_of_ours(client: AsyncClient, blocking_client: Client) -> None:
    job = await client.training_jobs.submit(JOB)
    with pytest.raises(DeadlineExceededError, match=rf"after 0\.2 s job {job.id} is not over") as there:
        await job.wait(timeout=0.2)
    assert there.value.reason == "WAIT_TIMED_OUT"
    with pytest.raises(DeadlineExceededError, match=r"after 0\.2 s"):
        blocking_client.training_jobs.wait(job.id, timeout=0.2)
    assert (await job.pause()).status is JobStatus.PAUSED
    # It was queued, and is paused: what `until` names is its status now, not one that it once had.
    assert (await job.wait(until={JobStatus.PAUSED}, timeout=30)).status is JobStatus.PAUSED
    with pytest.raises(DeadlineExceededError):
        await job.wait(until={JobStatus.QUEUED}, timeout=0.2)
    await job.cancel()


async def test_a_watch_that_is_cancelled_or_closed_leaves_nothing(client: AsyncClient) -> None:
    job = await client.training_jobs.submit(JOB)
    async with aclosing(client.training_jobs.watch(job.id)) as events:
        first = await anext(events)
    assert isinstance(first.body, models.StatusChanged)

    async def watch() -> None:
        async for _ in client.training_jobs.watch(job.id, after_cursor=first.cursor):
            pass

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.05)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    await job.cancel()


def test_the_blocking_client_works_in_an_event_loop_and_in_threads(blocking_client: Client) -> None:
    async def inside() -> list[str]:
        return [job.id for job in blocking_client.training_jobs.list()]

    assert asyncio.run(inside()) == [job.id for job in blocking_client.training_jobs.list()]
    job = blocking_client.training_jobs.submit(JOB)
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(blocking_client.training_jobs.get(job.id)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(type(result), result.id) for result in results] == [(Job, job.id)] * 8
    events = blocking_client.training_jobs.watch(job.id)
    assert isinstance(next(events).body, models.StatusChanged)
    events.close()
    job.cancel()


class _Cutting:
    """Stands between a client and the gateway, and cuts each connection after a number of bytes."""

    def __init__(self, target: str, after: Iterator[int]) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._after = after
        self.cuts = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        left = next(self._after)

        async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter, counts: bool) -> None:
            nonlocal left
            while data := await source.read(256):
                if counts and left <= 0:
                    self.cuts += 1
                    return
                left -= len(data) if counts else 0
                sink.write(data)
                await sink.drain()

        tasks = [
            asyncio.create_task(pipe(reader, back, False)),
            asyncio.create_task(pipe(there, writer, True)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        back.close()
        writer.close()


async def test_a_watch_over_a_cut_connection_sees_every_event_once(
    gateway: Stack, client: AsyncClient
) -> None:
    job = await client.training_jobs.submit(JOB)
    for _ in range(6):
        await job.pause()
        await job.resume()
    await job.cancel()
    expected = [event.cursor async for event in client.training_jobs.watch(job.id)]
    assert len(expected) >= 14
    proxy = _Cutting(gateway.grpc_address, iter([600, 700, 800, 900, 1000, 10**9]))
    async with proxy as address, AsyncClient(address) as other:
        seen = [event.cursor async for event in other.training_jobs.watch(job.id, reconnect_seconds=30)]
    assert seen == expected
    assert proxy.cuts >= 2


async def test_a_lost_answer_is_repeated_under_the_same_request_id(
    gateway: Stack, client: AsyncClient
) -> None:
    before = len([job async for job in client.training_jobs.list()])
    # The first connections end before the answer to the create is through; what was asked has arrived.
    proxy = _Cutting(gateway.grpc_address, iter([60, 90, 10**9]))
    async with proxy as address, AsyncClient(address) as other:
        started = time.monotonic()
        made = await other.training_jobs.submit(JOB)
        assert time.monotonic() - started < 20
    assert proxy.cuts >= 1
    assert len([job async for job in client.training_jobs.list()]) == before + 1
    await (await client.training_jobs.get(made.id)).cancel()


async def test_all_jobs_are_watched(client: AsyncClient) -> None:
    first = await client.training_jobs.submit(JOB)
    async with aclosing(client.training_jobs.watch(first.id)) as events:
        cursor = (await anext(events)).cursor
    second = await client.training_jobs.submit(JOB)
    kinds = ["status_changed"]
    async with (
        asyncio.timeout(30),
        aclosing(client.training_jobs.watch_all(after_cursor=cursor, kinds=kinds)) as events,
    ):
        async for event in events:
            if event.job_id == second.id:
                assert isinstance(event.body, models.StatusChanged)
                break
