"""Asking for jobs: repeated requests, pages, and refusals by the table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from stored_jobs import add_job, add_run
from test_submission import Datasets as _Datasets
from test_submission import Servers, spec

from gateway.jobs import creation as creation_module
from gateway.jobs.service import JobService
from gateway.store import Store
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from plaudit.types.statuses import JobStatus


@pytest.fixture
async def jobs(store: Store, tmp_path: Path) -> JobService:
    dataset = await _Datasets().find("numbers")
    server = await Servers().find("builtin")
    assert dataset is not None
    assert isinstance(server, RegisteredRewardServer)
    async with store.transaction() as session:
        await session.datasets.insert(dataset)
        await session.reward_servers.insert(server)
    return JobService(store, _Datasets(), Servers(), tmp_path, on_change=lambda: None)


async def test_a_repeated_request_returns_the_first_job(
    jobs: JobService, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await jobs.create(spec(), request_id="r-1")
    assert await jobs.create(spec(hyperparameters={"seed": 42}), request_id="r-1") == first
    assert await jobs.create(spec(), request_id="r-2") != first
    with pytest.raises(FailedPreconditionError) as reused:
        await jobs.create(spec(output_name="other"), request_id="r-1")
    assert reused.value.reason == "REQUEST_ID_REUSED"
    assert first.id in reused.value.message
    with pytest.raises(InvalidArgumentError) as refused:
        await jobs.create(spec(), request_id="a b")
    assert [v.field for v in refused.value.violations] == ["request_id"]
    # A day later the id is free again.
    monkeypatch.setattr(creation_module, "REQUEST_ID_LIFETIME", timedelta(0))
    assert (await jobs.create(spec(output_name="other"), request_id="r-1")).id != first.id


async def test_a_check_stores_nothing(jobs: JobService, store: Store) -> None:
    job = await jobs.create(spec(), validate_only=True)
    assert (job.id, job.status, job.spec.hyperparameters.kl_coef) == ("", JobStatus.QUEUED, 0.001)
    assert (await jobs.list()).items == []
    assert await store.newest_event() == 0


async def test_pages_of_jobs(jobs: JobService) -> None:
    ids = [(await jobs.create(spec())).id for _ in range(5)]
    await jobs.pause(ids[1])
    first = await jobs.list(limit=2)
    assert [job.id for job in first.items] == [ids[4], ids[3]]
    second = await jobs.list(limit=2, after=first.next_page_token)
    assert [job.id for job in second.items] == [ids[2], ids[1]]
    third = await jobs.list(limit=2, after=second.next_page_token)
    assert ([job.id for job in third.items], third.next_page_token) == ([ids[0]], "")
    assert [job.id for job in (await jobs.list(statuses=[JobStatus.PAUSED])).items] == [ids[1]]
    for bad in ({"limit": -1}, {"after": "job_unknown"}):
        with pytest.raises(InvalidArgumentError):
            await jobs.list(**bad)  # type: ignore[arg-type]


async def test_the_request_id_of_a_deleted_job_makes_no_second_one(jobs: JobService) -> None:
    first = await jobs.create(spec(), request_id="r-1")
    await jobs.cancel(first.id)
    await jobs.delete(first.id)
    with pytest.raises(FailedPreconditionError, match=f"{first.id}, which was deleted") as refused:
        await jobs.create(spec(), request_id="r-1")
    assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_a_request_id_is_of_one_call(jobs: JobService) -> None:
    first = await jobs.create(spec(), request_id="created")
    clone = await jobs.clone(first.id, {}, request_id="cloned")
    assert await jobs.clone(first.id, {}, request_id="cloned") == clone != first
    for again in (jobs.clone(first.id, {}, request_id="created"), jobs.create(spec(), request_id="cloned")):
        with pytest.raises(FailedPreconditionError) as refused:
            await again
        assert refused.value.reason == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(
    ("status", "ask", "after"),
    [
        (JobStatus.QUEUED, "pause", "paused"),
        (JobStatus.QUEUED, "cancel", "cancelled"),
        (JobStatus.QUEUED, "resume", None),
        (JobStatus.PAUSED, "resume", "queued"),
        (JobStatus.PAUSED, "cancel", "cancelled"),
        (JobStatus.RUNNING, "resume", None),
        (JobStatus.CANCELLING, "pause", None),
        (JobStatus.COMPLETED, "cancel", None),
        (JobStatus.COMPLETED, "resume", None),
        (JobStatus.FAILED, "resume", "queued"),
        (JobStatus.FAILED, "cancel", None),
        (JobStatus.CANCELLED, "cancel", "cancelled"),
        (JobStatus.CANCELLED, "resume", None),
    ],
)
async def test_what_may_be_asked(
    jobs: JobService, store: Store, status: JobStatus, ask: str, after: str | None
) -> None:
    record = await add_job(store, status)
    events = await store.newest_event()
    if after is None:
        with pytest.raises(FailedPreconditionError) as refused:
            await getattr(jobs, ask)(record.job.id)
        assert refused.value.reason == "STATUS_FORBIDS"
        assert f"{record.job.id} is {status}" in refused.value.message
        assert (await jobs.get(record.job.id)).status is status
    else:
        assert (await getattr(jobs, ask)(record.job.id)).status == after
        assert (await jobs.get(record.job.id)).status == after
    assert await store.newest_event() == events + (after not in (None, status))


@pytest.mark.parametrize("ask", ["get", "pause", "resume", "cancel", "metrics", "completions"])
async def test_a_job_that_is_not_known(jobs: JobService, ask: str) -> None:
    with pytest.raises(NotFoundError, match="job_unknown"):
        await getattr(jobs, ask)("job_unknown")


async def test_series_of_metrics(jobs: JobService, store: Store) -> None:
    record = await add_job(store)
    await add_run(store, record, 1)
    async with store.transaction() as session:
        for step in range(1, 11):
            values = {"loss": 1 / step, "reward_mean": step / 10}
            await session.points.insert(record.key, 1, step, values if step % 2 else {"loss": 1 / step})

    async def rows(**query: Any) -> list[tuple[int, dict[str, float]]]:
        series = await jobs.metrics(record.job.id, **query)
        assert series.available_keys == ["loss", "reward_mean"]
        return [(row.step, dict(row.values)) for row in series.rows]

    assert await rows(keys=["reward_mean"], from_step=3, to_step=5) == [
        (3, {"reward_mean": 0.3}),
        (5, {"reward_mean": 0.5}),
    ]
    assert (await rows(from_step=9))[-1] == (10, {"loss": 0.1})
    assert await rows(keys=["nothing"]) == []
    assert await rows(from_step=2**63) == []
    assert len(await rows(keys=["loss"], max_points=4)) == 4
    with pytest.raises(InvalidArgumentError) as refused:
        await jobs.metrics(record.job.id, from_step=-1, to_step=-2, max_points=5001)
    assert [v.field for v in refused.value.violations] == ["from_step", "to_step", "max_points"]
    with pytest.raises(InvalidArgumentError, match="lies before from_step"):
        await jobs.metrics(record.job.id, from_step=9, to_step=3)
