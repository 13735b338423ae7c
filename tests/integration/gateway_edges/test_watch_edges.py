"""Watching by gRPC and by server-sent events: one order, one set of cursors, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from edges import Edges, details_of, open_edges, until

from gateway import http_protocol
from gateway.events import (
    Alert,
    AttemptStarted,
    CheckpointSaved,
    LogLine,
    Payload,
    StatusChanged,
    StepMetrics,
)
from gateway.jobs.job import JobError
from gateway.rewards import Registration
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.rpc import error_from_rpc
from plaudit.types.statuses import JobStatus

COURSE: tuple[Payload, ...] = (
    AttemptStarted(1, 0),
    StatusChanged(JobStatus.RUNNING, "waits for reward server judge"),
    StepMetrics(1, 1, {"loss": math.nan, "reward_mean": 0.25}, 40),
    CheckpointSaved("job_1@1", 1, 1234),
    Alert("policy_collapse", "critical", "entropy falls", 1, {"policy_entropy": 0.01}),
    LogLine("warning", "slow", '{"seconds": 3}'),
    StepMetrics(2, 1, {"loss": 0.5, "reward_mean": 0.5}, 40),
)
END = StatusChanged(JobStatus.FAILED, "", JobError("out_of_memory", "48 GB were not enough"))


@dataclass(frozen=True)
class Sent:
    """A server-sent event as a browser parses it."""

    kind: str
    id: str | None
    data: str

    @property
    def body(self) -> Any:
        return json.loads(self.data)


async def sent_events(edges: Edges, path: str, last_event_id: str = "") -> AsyncIterator[Sent]:
    """Parses the stream by the rules of the HTML standard."""
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    async with edges.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        assert "no-store" in answer.headers["cache-control"]
        kind, identifier, data = "message", None, []
        async for line in answer.aiter_lines():
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "id":
                identifier = value
            elif name == "data":
                data.append(value)
            elif not line:
                if data:
                    yield Sent(kind, identifier, "\n".join(data))
                kind, identifier, data = "message", None, []


async def queue_job(edges: Edges) -> str:
    await edges.gateway.reward_servers.create("judge", Registration(addresses=("127.0.0.1:1",)))
    spec = {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "rewards": [{"server": "judge", "reward": "exact"}],
    }
    return (await edges.gateway.jobs.create(spec)).id


async def happen(edges: Edges, job_id: str, *payloads: Payload) -> None:
    """Stores what happened, as the gateway does when it reads a journal."""
    from dataclasses import replace
    from datetime import UTC, datetime

    for payload in payloads:
        async with edges.store.transaction() as session:
            record = await session.jobs.find(job_id)
            assert record is not None
            if isinstance(payload, StatusChanged):
                await session.jobs.save(replace(record, job=replace(record.job, status=payload.status)))
            await session.events.append(record.key, job_id, payload, datetime.now(UTC))


async def watched(edges: Edges, job_id: str, after_cursor: str = "") -> list[pb.TrainingJobEvent]:
    request = pb.WatchTrainingJobRequest(id=job_id, after_cursor=after_cursor)
    return [event async for event in edges.jobs.WatchTrainingJob(request)]


async def test_both_languages_tell_the_same_story_to_its_end(edges: Edges) -> None:
    job_id = await queue_job(edges)
    await happen(edges, job_id, *COURSE, END)
    by_grpc = await watched(edges, job_id)
    by_sse = [event async for event in sent_events(edges, f"/v1/training_jobs/{job_id}/watch")]
    assert [event.WhichOneof("event") for event in by_grpc] == [
        "status_changed",
        "attempt_started",
        "status_changed",
        "step_metrics",
        "checkpoint_saved",
        "alert",
        "log_line",
        "step_metrics",
        "status_changed",
    ]
    assert [event.kind for event in by_sse] == [event.WhichOneof("event") for event in by_grpc]
    assert [event.id for event in by_sse] == [event.cursor for event in by_grpc]
    assert all(event.body["cursor"] == event.id for event in by_sse)
    assert all(event.body["job_id"] == job_id for event in by_sse)
    step = by_grpc[3].step_metrics
    assert (step.step, step.attempt, step.total_steps) == (1, 1, 40)
    assert math.isnan(step.values["loss"])
    assert by_sse[3].body["step_metrics"] == {
        "step": 1,
        "attempt": 1,
        "values": {"loss": "NaN", "reward_mean": 0.25},
        "total_steps": 40,
    }
    assert by_sse[4].body["checkpoint_saved"] == {
        "checkpoint_id": "job_1@1",
        "step": 1,
        "size_bytes": 1234,
    }
    assert by_sse[5].body["alert"]["evidence"] == {"policy_entropy": 0.01}
    assert by_sse[6].body["log_line"] == {
        "level": "warning",
        "message": "slow",
        "fields_json": '{"seconds": 3}',
    }
    assert by_sse[-1].body["status_changed"] == {
        "status": "failed",
        "detail": "",
        "error": {"code": "oom", "message": "48 GB were not enough"},
    }
    assert by_grpc[-1].status_changed.error.code == "out_of_memory"


async def test_a_reader_resumes_behind_the_last_event_that_it_saw(edges: Edges) -> None:
    job_id = await queue_job(edges)
    await happen(edges, job_id, *COURSE)
    path = f"/v1/training_jobs/{job_id}/watch"
    first: list[Sent] = []
    async for event in sent_events(edges, path):
        first.append(event)
        if len(first) == 4:
            break  # the connection breaks
    await happen(edges, job_id, END)
    rest = [event async for event in sent_events(edges, path, last_event_id=first[-1].id or "")]
    everything = [event.cursor for event in await watched(edges, job_id)]
    assert [event.id for event in (*first, *rest)] == everything
    assert [event.cursor for event in await watched(edges, job_id, first[-1].id or "")] == everything[4:]
    by_query = [event.id async for event in sent_events(edges, f"{path}?after_cursor={everything[6]}")]
    assert by_query == everything[7:]


async def test_events_reach_readers_of_both_languages_as_they_happen(edges: Edges) -> None:
    job_id = await queue_job(edges)
    seen_by_sse: list[str] = []

    async def read() -> None:
        async for event in sent_events(
            edges, f"/v1/training_jobs/{job_id}/watch?kinds=step_metrics,bookmark"
        ):
            seen_by_sse.append(event.kind)

    reading = asyncio.create_task(read())
    following = asyncio.create_task(watched(edges, job_id))
    for payload in COURSE:
        await happen(edges, job_id, payload)
        await asyncio.sleep(0)
    await happen(edges, job_id, END)
    await asyncio.wait_for(reading, 10)
    assert seen_by_sse == ["step_metrics", "step_metrics"]
    assert len(await asyncio.wait_for(following, 10)) == len(COURSE) + 2


async def test_a_browser_is_told_to_stay_away_once_all_is_told(edges: Edges) -> None:
    job_id = await queue_job(edges)
    await happen(edges, job_id, END)
    last = (await watched(edges, job_id))[-1].cursor
    answer = await edges.http.get(f"/v1/training_jobs/{job_id}/watch", headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_cursor_that_is_none_is_told_by_the_name_under_which_it_came(edges: Edges) -> None:
    path = f"/v1/training_jobs/{await queue_job(edges)}/watch"
    for given, name in (({"headers": {"Last-Event-ID": "x"}}, "Last-Event-ID"),
                        ({"params": {"after_cursor": "x"}}, "after_cursor")):  # fmt: skip
        wrong = await edges.http.get(path, **given)
        assert [e["param"] for e in wrong.json()["error"]["errors"]] == [name]


async def test_a_cursor_of_another_store_is_told_to_start_again(edges: Edges, tmp_path: Path) -> None:
    job_id = await queue_job(edges)
    await happen(edges, job_id, END)
    foreign = "0badcafe-3"
    path = f"/v1/training_jobs/{job_id}/watch"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watched(edges, job_id, foreign)
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert error_from_rpc(caught.value).reason == "CURSOR_EXPIRED"
    answer = await edges.http.get(f"{path}?after_cursor={foreign}")
    assert answer.status_code == 410
    assert answer.json()["error"]["code"] == "CURSOR_EXPIRED"
    # A browser can not read that answer: it gets an event, and an empty id with which it starts again.
    (resync,) = [event async for event in sent_events(edges, path, last_event_id=foreign)]
    assert (resync.kind, resync.id) == ("resync", "")
    assert resync.body["code"] == "CURSOR_EXPIRED"


async def test_what_is_no_cursor_and_what_is_no_kind_are_refused(edges: Edges) -> None:
    job_id = await queue_job(edges)
    request = pb.WatchTrainingJobRequest(id=job_id, after_cursor="nonsense", kinds=["step_metrics", "steps"])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [event async for event in edges.jobs.WatchTrainingJob(request)]
    told = details_of(caught.value)
    assert set(told) == {"kinds", "after_cursor"}
    answer = await edges.http.get(
        f"/v1/training_jobs/{job_id}/watch?after_cursor=nonsense&kinds=step_metrics,steps"
    )
    assert answer.status_code == 422
    assert {e["param"]: e["message"] for e in answer.json()["error"]["errors"]} == told


async def test_all_jobs_can_be_watched_at_once(edges: Edges) -> None:
    one = await queue_job(edges)
    seen: list[tuple[str, str]] = []
    subscribed = asyncio.Event()

    async def read() -> None:
        async for event in sent_events(edges, "/v1/watch?kinds=status_changed"):
            seen.append((event.body["job_id"], event.body["status_changed"]["status"]))
            subscribed.set()

    reading = asyncio.create_task(read())
    for _ in range(200):
        # Only new ones are told, so it takes one that comes after the reader is there.
        await happen(edges, one, StatusChanged(JobStatus.RUNNING))
        if subscribed.is_set():
            break
        await asyncio.sleep(0.02)
    two = await queue_job(edges)
    await until(lambda: (two, "queued") in seen)
    reading.cancel()
    assert (one, "running") in seen
    assert (one, "queued") not in seen


async def test_a_quiet_stream_carries_bookmarks_from_which_it_resumes(tmp_path: Path) -> None:
    async with open_edges(tmp_path, bookmark_seconds=0.1) as edges:
        job_id = await queue_job(edges)
        await happen(edges, job_id, *COURSE)
        path = f"/v1/training_jobs/{job_id}/watch?kinds=status_changed"
        async for event in sent_events(edges, path):
            if event.kind == "bookmark":
                break
        assert event.body["bookmark"] == {}
        await happen(edges, job_id, END)
        rest = [each async for each in sent_events(edges, path, last_event_id=event.id or "")]
        assert [each.kind for each in rest] == ["status_changed"]


async def test_a_reader_of_an_older_http_gets_the_same_events(edges: Edges) -> None:
    job_id = await queue_job(edges)
    await happen(edges, job_id, *COURSE, END)
    path = f"/v1/training_jobs/{job_id}/watch"
    newer = (await edges.http.get(path)).content
    reader, writer = await asyncio.open_connection("127.0.0.1", int(edges.http_url.rpartition(":")[2]))
    writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    head, _, older = (await asyncio.wait_for(reader.read(-1), 20)).partition(b"\r\n\r\n")
    writer.close()
    assert b"chunked" not in head
    assert older == newer
    assert newer.startswith(b"retry: 1000\r\n\r\nid: ")
    assert newer.count(b"\r\nevent: ") == len(COURSE) + 2


async def test_a_reader_that_takes_nothing_is_dropped_and_costs_the_others_nothing(
    edges: Edges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "TAKE_SECONDS", 0.2)
    job_id = await queue_job(edges)
    port = int(edges.http_url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(f"GET /v1/training_jobs/{job_id}/watch HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"queued")
    following = asyncio.create_task(watched(edges, job_id))
    with structlog.testing.capture_logs() as logs:
        await happen(edges, job_id, *[LogLine("info", "x" * 500_000) for _ in range(40)], END)
        assert len(await asyncio.wait_for(following, 20)) == 42
        await until(lambda: [entry for entry in logs if entry["event"].startswith("a client takes nothing")])
    # What the connection held when it was dropped is there, and the stream has no end.
    rest = await asyncio.wait_for(reader.read(-1), 20)
    writer.close()
    assert len(rest) < 40 * 500_000
    assert b'"status":"failed"' not in rest


async def test_streams_end_when_the_gateway_stops(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as edges:
        job_id = await queue_job(edges)
        stream = sent_events(edges, f"/v1/training_jobs/{job_id}/watch")
        assert (await anext(stream)).kind == "status_changed"
        call = edges.jobs.WatchTrainingJob(pb.WatchTrainingJobRequest(id=job_id))
        assert (await call.read()).status_changed.status
        edges.gateway.events.close()
        assert await anext(stream, None) is None
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_the_log_of_a_job_is_listed_newest_first(edges: Edges) -> None:
    job_id = await queue_job(edges)
    await happen(edges, job_id, *COURSE, END)
    body = (await edges.http.get(f"/v1/training_jobs/{job_id}/events")).json()
    told = [(event["level"], event["event_type"], event["message"]) for event in body["data"]]
    assert told == [
        ("error", "status_changed", "failed: 48 GB were not enough"),
        ("warn", "log_line", "slow"),
        ("error", "alert", "entropy falls"),
        ("info", "checkpoint_saved", "checkpoint after step 1"),
        ("info", "status_changed", "running: waits for reward server judge"),
        ("info", "attempt_started", "attempt 1 starts from the base model"),
        ("info", "status_changed", "queued"),
    ]
    assert body["data"][0]["metadata"]["error"]["code"] == "oom"
    assert (body["object"], body["has_more"]) == ("list", False)
    newest = body["data"][1]
    assert newest["metadata"] == {"seconds": 3}
    assert (newest["object"], newest["job_id"], newest["request_id"]) == ("event", job_id, None)
    two = (await edges.http.get(f"/v1/training_jobs/{job_id}/events?limit=2")).json()
    assert two["data"] == body["data"][:2]
    assert two["has_more"] is True
