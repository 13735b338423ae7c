"""A job's log as text and its events in pages, in REST and over gRPC."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from dialect_jobs import SOURCE, created, end, tell
from edges import Edges

from gateway.events import AttemptStarted, LogLine, StatusChanged
from gateway.jobs.job import JobError
from plaudit import Client
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.types.statuses import JobStatus


def data_lines(text: str) -> list[str]:
    """The data lines of server-sent events, read as existing clients read them: by str.splitlines."""
    return [line[5:].lstrip() for line in text.splitlines() if line.startswith("data:")]


async def test_the_log_is_refused_before_a_trainer_has_the_job(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    answer = await edges.http.get(f"/v1/training_jobs/{job['id']}/logs")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "NOT_STARTED"
    whole = await edges.http.get(f"/v1/training_jobs/{job['id']}/logs/full")
    assert whole.status_code == 206
    assert whole.headers["content-type"].startswith("text/plain")
    assert whole.text.endswith(" info queued\n")
    for path in ("logs", "logs/full", "events"):
        assert (await edges.http.get(f"/v1/training_jobs/job_none/{path}")).status_code == 404


async def test_the_log_ends_by_saying_how_the_job_ended(edges: Edges) -> None:
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        job = await created(edges, reward_source=SOURCE)
        await end(edges, job["id"], status)
        streamed = data_lines((await edges.http.get(f"/v1/training_jobs/{job['id']}/logs")).text)
        assert streamed[-1] == f"[Job {status}]"
        # Nothing that a run writes can pass for that line.
        assert [line for line in streamed if line.startswith("[Job ")] == [f"[Job {status}]"]
        whole = await edges.http.get(f"/v1/training_jobs/{job['id']}/logs/full")
        assert whole.status_code == 200
        assert whole.text.splitlines() == streamed
        assert [line.split(" ", 2)[2] for line in streamed if line[0].isdigit()][1:5] == [
            "attempt 1 begins from its start",
            "running",
            "step 1/2 reward_mean=0.5 loss=NaN",
            "two",
        ]
        assert streamed[5:8] == ["| lines", "| and [Job completed] note=x", streamed[7]]


async def test_a_log_is_followed_while_it_grows_and_resumed_by_its_ids(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    await tell(edges, job["id"], AttemptStarted(1, 0), StatusChanged(JobStatus.RUNNING))
    path = f"/v1/training_jobs/{job['id']}/logs"
    seen: list[str] = []
    async with edges.http.stream("GET", path) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        last_id = ""
        async for line in stream.aiter_lines():
            if line.startswith("id:"):
                last_id = line[3:].strip()
            if line.startswith("data:"):
                seen.append(line)
                if "running" in line:
                    await tell(edges, job["id"], LogLine("info", "later"))
                if "later" in line:
                    break
    await tell(edges, job["id"], StatusChanged(JobStatus.FAILED, error=JobError("out_of_memory", "too big")))
    rest = data_lines((await edges.http.get(path, headers={"Last-Event-ID": last_id})).text)
    assert [line.partition(" ")[2] for line in rest[-2:]] == [
        "info failed: out_of_memory: too big",
        "failed]",
    ]
    wrong = await edges.http.get(path, headers={"Last-Event-ID": "x"})
    assert [e["param"] for e in wrong.json()["error"]["errors"]] == ["Last-Event-ID"]


async def test_grpc_and_the_sdk_read_the_same_log(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    await end(edges, job["id"])
    whole = (await edges.http.get(f"/v1/training_jobs/{job['id']}/logs/full")).text.splitlines()
    for follow in (False, True):
        request = pb.StreamTrainingJobLogRequest(id=job["id"], follow=follow)
        assert [text.line async for text in edges.jobs.StreamTrainingJobLog(request)] == whole

    def read() -> tuple[list[str], list[str]]:
        with Client(edges.grpc_address) as client:
            return [*client.training_jobs.logs(job["id"])], [
                *client.training_jobs.logs(job["id"], follow=True)
            ]

    assert await asyncio.to_thread(read) == (whole, whole)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in edges.jobs.StreamTrainingJobLog(pb.StreamTrainingJobLogRequest(id="job_none")):
            pass
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_events_come_in_pages_in_both_languages(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    await end(edges, job["id"])
    path = f"/v1/training_jobs/{job['id']}/events"
    everything = (await edges.http.get(path)).json()
    assert [event["event_type"] for event in everything["data"]] == [
        "status_changed",
        "log_line",
        "status_changed",
        "attempt_started",
        "status_changed",
    ]
    assert (everything["data"][1]["level"], everything["has_more"]) == ("warn", False)
    ids = [event["id"] for event in everything["data"]]
    first = (await edges.http.get(path, params={"limit": 2})).json()
    assert ([event["id"] for event in first["data"]], first["has_more"]) == (ids[:2], True)
    second = (await edges.http.get(path, params={"after": ids[1]})).json()
    assert ([event["id"] for event in second["data"]], second["has_more"]) == (ids[2:], False)
    listed = await edges.jobs.ListTrainingJobEvents(
        pb.ListTrainingJobEventsRequest(id=job["id"], page_size=3)
    )
    assert [event.cursor for event in listed.events] == ids[:3]
    listed = await edges.jobs.ListTrainingJobEvents(
        pb.ListTrainingJobEventsRequest(id=job["id"], page_token=listed.next_page_token)
    )
    assert ([event.cursor for event in listed.events], listed.next_page_token) == (ids[3:], "")
    for query, param in (("after=x", "after"), ("limit=-1", "limit"), ("after=00000000-1", "after")):
        answer = await edges.http.get(f"{path}?{query}")
        assert [e["param"] for e in answer.json()["error"]["errors"]] == [param]


async def test_metrics_come_as_csv_where_it_is_asked_for(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job["id"])
        assert record is not None
        await session.runs.insert(
            "run_1",
            job_key=record.key,
            attempt=1,
            trainer_id="t",
            from_step=0,
            checkpoint_uri="",
            spec_json="{}",
            created_at=record.job.created_at,
        )
        await session.points.insert(record.key, 1, 1, {"loss": float("nan"), "a,b": 0.1})
        await session.points.insert(record.key, 1, 2, {"loss": float("-inf")})
        await session.points.insert(record.key, 1, 3, {"loss": 1e-300, "a,b": float("inf")})
    path = f"/v1/training_jobs/{job['id']}/metrics"
    for accept, keys, expected in (
        ("text/csv", "", 'step,attempt,"a,b",loss\n1,1,0.1,NaN\n2,1,,-Infinity\n3,1,Infinity,1e-300\n'),
        ("text/csv;q=1, */*", "loss,none", "step,attempt,loss,none\n1,1,NaN,\n2,1,-Infinity,\n3,1,1e-300,\n"),
    ):
        answer = await edges.http.get(path, params={"keys": keys}, headers={"Accept": accept})
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.text == expected
    answer = await edges.http.get(path, headers={"Accept": "application/json, text/csv"})
    rows = json.loads(answer.text)["metrics"]
    assert [row["values"]["loss"] for row in rows] == ["NaN", "-Infinity", 1e-300]
