"""Reads whose callers hang up, and more of them than can be: who asks for less does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import grpc
import pytest
from edges import Edges, until
from job_fixtures import GOOD, create, register

from gateway.store._lanes import SCAN_BOUNDS
from plaudit.gateway.v1 import training_job_service_pb2 as pb


@asynccontextmanager
async def no_scanner_free(edges: Edges) -> AsyncIterator[None]:
    """Meanwhile whoever scans the store waits."""
    async with AsyncExitStack() as held:
        for _ in range(edges.store._scanners.free):
            await held.enter_async_context(edges.store.scan("a test"))
        yield


async def asks(edges: Edges, path: str) -> asyncio.StreamWriter:
    """A connection on which something was asked for."""
    port = urlsplit(edges.http_url).port
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return writer


async def test_who_hangs_up_leaves_the_queue(edges: Edges) -> None:
    await register(edges)
    made = await create(edges, GOOD)
    path = f"/v1/training_jobs/{made.id}"
    lane = edges.store._scanners
    async with no_scanner_free(edges):
        connections = [await asks(edges, f"{path}/{what}") for what in ("metrics", "completions")]
        calls = [
            edges.jobs.GetTrainingJobMetrics(pb.GetTrainingJobMetricsRequest(id=made.id)),
            edges.jobs.ListCompletions(pb.ListCompletionsRequest(id=made.id)),
        ]
        await until(lambda: lane.waiting == 4)
        # What reads less does not wait for them.
        assert (await edges.http.get(path)).json()["id"] == made.id
        assert (await edges.http.post(f"{path}/heartbeat")).status_code == 200
        assert (await edges.jobs.GetTrainingJob(pb.GetTrainingJobRequest(id=made.id))).id == made.id
        assert len((await edges.http.get("/v1/training_jobs")).json()["data"]) == 1
        for connection in connections:
            connection.close()
        await until(lambda: lane.waiting == 2)
        for call in calls:
            call.cancel()
        await until(lambda: lane.waiting == 0)
    assert (await edges.http.get(f"{path}/metrics")).json()["metrics"] == []


async def test_more_than_can_wait_are_refused_with_when_to_ask_again(edges: Edges) -> None:
    await register(edges)
    made = await create(edges, GOOD)
    path = f"/v1/training_jobs/{made.id}/metrics"
    async with no_scanner_free(edges):
        waiting = [await asks(edges, path) for _ in range(SCAN_BOUNDS.most_waiting)]
        await until(lambda: edges.store._scanners.waiting == len(waiting))
        refused = await edges.http.get(path)
        with pytest.raises(grpc.aio.AioRpcError) as call:
            await edges.jobs.GetTrainingJobMetrics(pb.GetTrainingJobMetricsRequest(id=made.id))
        for connection in waiting:
            connection.close()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert refused.json()["error"]["code"] == "TOO_MANY_READS"
    assert call.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
