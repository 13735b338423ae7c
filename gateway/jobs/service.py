"""What callers may ask of training jobs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from gateway.events import StatusChanged
from gateway.jobs import lifecycle
from gateway.jobs.completions import CompletionReader, Position, ScoredCompletion
from gateway.jobs.job import Job, Page
from gateway.jobs.ports import DatasetCatalog, RewardServerCatalog
from gateway.jobs.series import LARGEST_STEP, MetricSeries, checked_query, read_series
from gateway.jobs.submission import Submission, check_submission
from gateway.jobs.transitions import JobEvent
from gateway.store import Session, Store
from gateway.store.ids import new_id
from gateway.store.jobs import JobRecord
from gateway.store.requests import KnownRequest
from plaudit.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import check_job_spec, shown

REQUEST_ID_LIFETIME: Final = timedelta(hours=24)

_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_DEFAULT_JOBS: Final = 20
_DEFAULT_COMPLETIONS: Final = 50
_LARGEST_PAGE: Final = 500


class JobService:
    """Creates, shows and steers training jobs. Methods raise NotFoundError for a job that is not known."""

    def __init__(
        self,
        store: Store,
        datasets: DatasetCatalog,
        reward_servers: RewardServerCatalog,
        artifact_root: Path,
        *,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called after something was asked that trainers must hear of."""
        self._store = store
        self._datasets = datasets
        self._reward_servers = reward_servers
        self._completions = CompletionReader(artifact_root)
        self._on_change = on_change

    async def create(
        self, spec_data: object, *, request_id: str | None = None, validate_only: bool = False
    ) -> Job:
        """Queues a job of JSON-like data (the fields of plaudit.types.jobs.TrainingJobSpec).

        Repeated with the same `request_id` within 24 hours it returns the first job. With `validate_only`
        nothing is stored, and the job has the id "".

        Raises InvalidArgumentError with everything that is wrong at once, NotFoundError where nothing is
        wrong but that the dataset or a reward server is not known, FailedPreconditionError (reason
        REQUEST_ID_REUSED) where the request id belongs to another spec.
        """
        if request_id and not _REQUEST_ID.fullmatch(request_id):
            raise InvalidArgumentError.of(
                "request_id",
                f"{shown(request_id)} is refused; send a UUID, or any 1 to 128 visible characters",
            )
        if request_id and (spec := check_job_spec(spec_data)[0]) is not None:
            async with self._store.snapshot() as session:
                known = await _known_job(session, request_id, spec)
            if known is not None:
                return known
        submission = await check_submission(spec_data, self._datasets, self._reward_servers)
        time = datetime.now(UTC)
        job = Job(
            id="" if validate_only else new_id("job"),
            spec=submission.spec,
            status=JobStatus.QUEUED,
            created_at=time,
            updated_at=time,
        )
        if validate_only:
            return job
        async with self._store.transaction() as session:
            if request_id and (known := await _known_job(session, request_id, submission.spec)) is not None:
                return known
            await _insert(session, job, submission, request_id)
        self._on_change()
        return job

    async def get(self, job_id: str) -> Job:
        """The job."""
        async with self._store.snapshot() as session:
            return (await _required(session, job_id)).job

    async def list(
        self, *, limit: int = 0, after: str = "", statuses: Collection[JobStatus] = ()
    ) -> Page[Job]:
        """Jobs, newest first. `limit` 0 is 20, above 500 is 500. `after` is the id of the last job of the
        page before, which is also that page's `next_page_token`. No `statuses`: all.
        """
        size = _page_size(limit, _DEFAULT_JOBS)
        async with self._store.snapshot() as session:
            last = await session.jobs.find(after) if after else None
            if after and last is None:
                raise InvalidArgumentError.of(
                    "page_token", f"{shown(after)} is not the id of a job; list again from the start"
                )
            found = await session.jobs.page(
                limit=size + 1, before_key=last.key if last else None, statuses=statuses
            )
        jobs = [record.job for record in found[:size]]
        return Page(jobs, jobs[-1].id if len(found) > size else "")

    async def pause(self, job_id: str) -> Job:
        """Asks the job to pause; returns before it has. FailedPreconditionError (STATUS_FORBIDS) by the
        table.
        """
        return await self._ask(job_id, JobEvent.PAUSE)

    async def resume(self, job_id: str) -> Job:
        """Queues a paused or failed job again. FailedPreconditionError (STATUS_FORBIDS) by the table."""
        return await self._ask(job_id, JobEvent.RESUME)

    async def cancel(self, job_id: str) -> Job:
        """Asks the job to stop; returns before it has. FailedPreconditionError (STATUS_FORBIDS) by the
        table.
        """
        return await self._ask(job_id, JobEvent.CANCEL)

    async def metrics(
        self,
        job_id: str,
        *,
        keys: Sequence[str] = (),
        from_step: int = 0,
        to_step: int = 0,
        max_points: int = 0,
    ) -> MetricSeries:
        """Metric series. No `keys`: all; `to_step` 0: to the end; `max_points` a key: 0 is 500, at most
        5000.
        """
        query = checked_query(keys, from_step, to_step, max_points)
        async with self._store.snapshot() as session:
            return await read_series(session, await _required(session, job_id), query)

    async def completions(
        self, job_id: str, *, step: int = 0, limit: int = 0, page_token: str = ""
    ) -> Page[ScoredCompletion]:
        """Scored completions, newest step first. `step` 0: all; `limit` 0 is 50, above 500 is 500."""
        size = _page_size(limit, _DEFAULT_COMPLETIONS)
        if step < 0:
            raise InvalidArgumentError.of("step", f"{step} is below 0; leave it out for all steps")
        start = Position.parse(page_token)
        async with self._store.snapshot() as session:
            record = await _required(session, job_id)
            files = await session.completion_files.on_line(
                record.key,
                await session.runs.line(record.key),
                step=min(step, LARGEST_STEP) or None,
                through=start.step if start else None,
            )
        return await self._completions.page(files, start, size)

    async def _ask(self, job_id: str, event: JobEvent) -> Job:
        async with self._store.transaction() as session:
            record = await _required(session, job_id)
            record = await lifecycle.ask(session, record, event, datetime.now(UTC))
        self._on_change()
        return record.job


async def _insert(session: Session, job: Job, submission: Submission, request_id: str | None) -> None:
    """Adds the job; what the check had found must still be there."""
    if await session.datasets.find(submission.dataset_id) is None:
        raise NotFoundError(
            f"dataset {shown(submission.spec.dataset_id)} was deleted meanwhile", field="dataset_id"
        )
    for binding, server_id in zip(submission.spec.rewards, submission.reward_server_ids, strict=True):
        if await session.reward_servers.find(server_id) is None:
            raise NotFoundError(
                f"reward server {shown(binding.server)} was deleted meanwhile", field="rewards"
            )
    record = await session.jobs.insert(
        job, dataset_id=submission.dataset_id, reward_server_ids=submission.reward_server_ids
    )
    await session.events.append(record.key, job.id, StatusChanged(job.status), job.created_at)
    if request_id:
        await session.requests.prune(before=job.created_at - REQUEST_ID_LIFETIME)
        request = KnownRequest(record.key, _digest(submission.spec))
        await session.requests.insert(request_id, request, job.created_at)


async def _known_job(session: Session, request_id: str, spec: TrainingJobSpec) -> Job | None:
    known = await session.requests.find(request_id, since=datetime.now(UTC) - REQUEST_ID_LIFETIME)
    if known is None:
        return None
    record = await session.jobs.find_by_key(known.job_key)
    assert record is not None
    if known.spec_sha256 != _digest(spec):
        raise FailedPreconditionError(
            f"request_id {shown(request_id)} belongs to job {record.job.id}, which asks for something else; "
            "a new job needs a new request_id",
            reason="REQUEST_ID_REUSED",
        )
    return record.job


async def _required(session: Session, job_id: str) -> JobRecord:
    record = await session.jobs.find(job_id)
    if record is None:
        raise NotFoundError(f"there is no training job {shown(job_id)}; list the jobs to see their ids")
    return record


def _digest(spec: TrainingJobSpec) -> str:
    return hashlib.sha256(spec.model_dump_json().encode()).hexdigest()


def _page_size(limit: int, default: int) -> int:
    if limit < 0:
        raise InvalidArgumentError.of("page_size", f"{limit} is below 0; leave it out for {default}")
    return min(limit or default, _LARGEST_PAGE)
