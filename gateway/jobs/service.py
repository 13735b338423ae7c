"""What callers may ask of training jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.access.callers import current_caller
from gateway.jobs import lifecycle
from gateway.jobs.completions import CompletionReader, Position, ScoredCompletion
from gateway.jobs.creation import JobCreation, unknown_job
from gateway.jobs.deletion import JobDeletion
from gateway.jobs.job import Job
from gateway.jobs.ports import DatasetCatalog, RewardServerCatalog
from gateway.jobs.series import LARGEST_STEP, MetricSeries, checked_query, read_series
from gateway.jobs.trainer_questions import JobChecks
from gateway.jobs.transitions import JobEvent
from gateway.pages import Page, page_size
from gateway.store import Session, Store
from gateway.store.jobs import JobRecord
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import shown

_DEFAULT_JOBS: Final = 20
_DEFAULT_COMPLETIONS: Final = 50
_PAGE_CHARACTERS: Final = 1_000_000


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
        open_jobs_per_token: int | None = None,
        job_checks: JobChecks | None = None,
    ) -> None:
        """`on_change` is called after something was asked that trainers must hear of. `open_jobs_per_token`
        is the most jobs of one token that are not over; None: unbounded. `job_checks` says whether new ones
        would run; None: nobody does.
        """
        self._store = store
        self._completions = CompletionReader(artifact_root)
        self._creation = JobCreation(
            store,
            datasets,
            reward_servers,
            artifact_root,
            on_change=on_change,
            open_jobs_per_token=open_jobs_per_token,
            job_checks=job_checks,
        )
        self._deletion = JobDeletion(store, artifact_root)
        self._on_change = on_change

    async def create(
        self,
        data: object,
        *,
        request_id: str | None = None,
        validate_only: bool = False,
        known_violations: Sequence[FieldViolation] = (),
    ) -> Job:
        """Queues a job of JSON-like data: the fields of plaudit.types.jobs.TrainingJobSpec, and those of
        `gateway.jobs.requests`.

        Repeated with the same `request_id` within 24 hours it returns the first job. With `validate_only`
        nothing is stored, and the job has the id "". `known_violations` is what was found wrong already, by
        fields of the spec.

        Raises InvalidArgumentError with everything that is wrong at once, NotFoundError where nothing is
        wrong but that the dataset, a reward server, a reward function or the job to start from is not known,
        FailedPreconditionError (reason REQUEST_ID_REUSED) where the request id belongs to another spec.
        """
        return await self._creation.create(
            data, request_id=request_id, validate_only=validate_only, known_violations=known_violations
        )

    async def clone(
        self, job_id: str, overrides: object, *, request_id: str | None = None, validate_only: bool = False
    ) -> Job:
        """Queues a job as this one, but for `overrides`, JSON-like data as for `create`: hyperparameters one
        by one, null for the default; every other field as a whole. Raises as `create` does.
        """
        return await self._creation.clone(
            job_id, overrides, request_id=request_id, validate_only=validate_only
        )

    async def delete(self, job_id: str) -> None:
        """Deletes a job that is over, and its files. FailedPreconditionError (STATUS_FORBIDS, IN_USE)."""
        await self._deletion.delete(job_id)

    async def finish_deletions(self) -> None:
        """Removes the files of deleted jobs that an earlier gateway did not come to remove."""
        await self._deletion.finish()

    async def heartbeat(self, job_id: str) -> Job:
        """Notes a sign of life of the job's client; from the first on, they are waited for where the job
        requires heartbeats.
        """
        async with self._store.transaction() as session:
            record = await _required(session, job_id)
            await session.jobs.note_heartbeat(record.key, datetime.now(UTC))
        return record.job

    async def get(self, job_id: str) -> Job:
        """The job."""
        async with self._store.snapshot() as session:
            return (await _required(session, job_id)).job

    async def list(
        self,
        *,
        limit: int = 0,
        after: str = "",
        statuses: Collection[JobStatus] = (),
        method: str | None = None,
    ) -> Page[Job]:
        """Jobs, newest first. `limit` 0 is 20, above 500 is 500. `after` is the id of the last job of the
        page before, which is also that page's `next_page_token`. No `statuses`: all; no `method`: all. A page
        ends early where it grows large.
        """
        size = page_size(limit, _DEFAULT_JOBS)
        async with self._store.snapshot() as session:
            last = await session.jobs.find(after) if after else None
            if after and last is None:
                raise InvalidArgumentError.of(
                    "page_token", f"{shown(after)} is not the id of a job; list again from the start"
                )
            found = await session.jobs.page(
                limit=size + 1,
                before_key=last.key if last else None,
                statuses=statuses,
                method=method,
            )
        jobs = _bounded([record.job for record in found[:size]])
        return Page(jobs, jobs[-1].id if len(found) > len(jobs) else "")

    async def pause(self, job_id: str) -> Job:
        """Asks the job to pause; returns before it has. FailedPreconditionError (STATUS_FORBIDS) by the
        table.
        """
        return await self._ask(job_id, JobEvent.PAUSE)

    async def resume(self, job_id: str) -> Job:
        """Queues a paused or failed job again, and waits for no heartbeat before another one came.
        FailedPreconditionError (STATUS_FORBIDS) by the table.
        """
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
        to_step: int | None = None,
        max_points: int = 0,
    ) -> MetricSeries:
        """Metric series. No `keys`: all; `to_step` None: to the end; `max_points` a key: 0 is 500, at most
        5000. ResourceExhaustedError (TOO_MANY_READS) where too many are asked for at once.
        """
        query = checked_query(keys, from_step, to_step, max_points)
        async with self._store.scan(current_caller().token_id) as session:
            return await read_series(session, await _required(session, job_id), query)

    async def completions(
        self,
        job_id: str,
        *,
        step: int | None = None,
        limit: int = 0,
        page_token: str = "",
        evaluations: bool = False,
    ) -> Page[ScoredCompletion]:
        """Scored completions, newest step first: those that were learnt from, or those of `evaluations`.
        `step` None: all; 0: the evaluation before the first step, and all of what was learnt from, as none of
        that has this step; `limit` 0 is 50, above 500 is 500. ResourceExhaustedError as for `metrics`.
        """
        size = page_size(limit, _DEFAULT_COMPLETIONS)
        if step is not None and step < 0:
            raise InvalidArgumentError.of("step", f"{step} is below 0; leave it out for all steps")
        if step == 0 and not evaluations:
            step = None
        start = Position.parse(page_token)
        async with self._store.scan(current_caller().token_id) as session:
            record = await _required(session, job_id)
            index = session.evaluation_files if evaluations else session.completion_files
            files = await index.on_line(
                record.key,
                await session.runs.line(record.key),
                step=None if step is None else min(step, LARGEST_STEP),
                through=start.step if start else None,
            )
        return await self._completions.page(files, start, size)

    async def _ask(self, job_id: str, event: JobEvent) -> Job:
        async with self._store.transaction() as session:
            record = await _required(session, job_id)
            record = await lifecycle.ask(session, record, event, datetime.now(UTC))
            if event is JobEvent.RESUME:
                await session.jobs.note_heartbeat(record.key, None)
        self._on_change()
        return record.job


async def _required(session: Session, job_id: str) -> JobRecord:
    record = await session.jobs.find(job_id)
    if record is None:
        raise unknown_job(job_id)
    return record


def _bounded(jobs: Sequence[Job]) -> Sequence[Job]:
    """The first jobs, as many as fit a message: rewards may hold whole programs."""
    characters = 0
    for count, job in enumerate(jobs, start=1):
        configs = (reward.config for reward in job.spec.rewards)
        characters += sum(len(str(value)) for config in configs for value in config.values())
        if characters > _PAGE_CHARACTERS:
            return jobs[:count]
    return jobs
