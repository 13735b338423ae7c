"""What callers may ask of rescores, and the few that run at a time."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from gateway.jobs.completions import CompletionReader
from gateway.jobs.creation import check_request_id
from gateway.jobs.ports import DatasetCatalog, RewardServerCatalog
from gateway.jobs.reward_checks import ReadDataset, check_rewards
from gateway.jobs.submission import not_found
from gateway.pages import Page, page_size
from gateway.rescoring.parts import PartFiles, PartPosition
from gateway.rescoring.rescore import Rescore, RescoreResult
from gateway.rescoring.runner import RescoreRunner
from gateway.rescoring.tally import Tally
from gateway.store import Session, Store
from gateway.store.completions import CompletionFile
from gateway.store.ids import new_id
from gateway.store.jobs import JobRecord
from gateway.store.rescores import RescoreRecord
from plaudit.errors import (
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from plaudit.service import Secrets
from plaudit.types.rescores import RescoreSpec, RescoreStatus
from plaudit.types.validation import check_rescore_spec, shown

PATIENCE_SECONDS: Final = 60.0
"""How long a rescore waits for reward servers before its first score."""

RUNNING_AT_ONCE: Final = 2
MAX_OPEN: Final = 64
"""Rescores that are queued or running."""

_DEFAULT_RESCORES: Final = 20
_DEFAULT_RESULTS: Final = 50


class RescoreService:
    """Creates, shows, runs and stops rescores. Methods raise NotFoundError for one that is not known."""

    def __init__(
        self,
        store: Store,
        datasets: DatasetCatalog,
        reward_servers: RewardServerCatalog,
        artifact_root: Path,
        secrets: Secrets,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._store = store
        self._datasets = datasets
        self._reward_servers = reward_servers
        self._files = PartFiles(artifact_root)
        self._runner = RescoreRunner(
            store, CompletionReader(artifact_root), self._files, secrets, patience_seconds=patience_seconds
        )
        self._news = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Runs what is queued, and goes on with what an earlier gateway left, until the context ends."""
        working = asyncio.create_task(self._work())
        try:
            yield
        finally:
            tasks = [working, *self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def create(
        self,
        job_id: str,
        data: Mapping[str, Any],
        *,
        request_id: str | None = None,
        known_violations: Sequence[FieldViolation] = (),
    ) -> Rescore:
        """Queues a rescore of JSON-like data (the fields of plaudit.types.rescores.RescoreSpec).

        Repeated with the same `request_id` it returns the first one. `known_violations` is what was found
        wrong already.

        Raises InvalidArgumentError with everything that is wrong at once, NotFoundError where nothing is
        wrong but that the job or a reward server is not known, FailedPreconditionError (NO_COMPLETIONS,
        REQUEST_ID_REUSED), ResourceExhaustedError (TOO_MANY_RESCORES).
        """
        check_request_id(request_id)
        digest = _digest(job_id, data)
        async with self._store.snapshot() as session:
            # What is left of a request that is refused may be like another one, of the same id.
            once = None if known_violations else request_id
            if once and (known := await _known(session, once, digest)) is not None:
                return self._shown(known)
            job = await _required_job(session, job_id)
        if not data.get("rewards"):
            bindings = [binding.model_dump(mode="json") for binding in job.job.spec.rewards]
            data = {**data, "rewards": bindings}
        spec, server_ids = await self._checked(data, job, known_violations)
        async with self._store.transaction() as session:
            if request_id and (known := await _known(session, request_id, digest)) is not None:
                return self._shown(known)
            if len(await session.rescores.open()) >= MAX_OPEN:
                raise ResourceExhaustedError(
                    f"{MAX_OPEN} rescores are queued or running, which is the most; cancel some, or wait",
                    reason="TOO_MANY_RESCORES",
                )
            files = await _files_in(session, job, spec)
            spec = spec.model_copy(update={"from_step": files[0].step, "to_step": files[-1].step})
            record = RescoreRecord(
                key=0,
                id=new_id("resc"),
                job_key=job.key,
                job_id=job.job.id,
                spec=spec,
                server_ids=server_ids,
                status=RescoreStatus.QUEUED,
                total_count=sum(file.row_count for file in files),
                tally_json=Tally().model_dump_json(),
                created_at=datetime.now(UTC),
            )
            await session.rescores.insert(record, request_id=request_id, request_sha256=digest)
        self._news.set()
        return self._shown(record)

    async def get(self, rescore_id: str) -> Rescore:
        """The rescore as it stands."""
        async with self._store.snapshot() as session:
            return self._shown(await _required(session, rescore_id))

    async def list(self, *, job_id: str = "", limit: int = 0, after: str = "") -> Page[Rescore]:
        """Rescores of a job ("": of all), newest first. `limit` 0 is 20, above 500 is 500. `after` is the id
        of the last one of the page before, which is also that page's `next_page_token`.
        """
        size = page_size(limit, _DEFAULT_RESCORES)
        async with self._store.snapshot() as session:
            job = await _required_job(session, job_id) if job_id else None
            last = await session.rescores.find(after) if after else None
            if after and last is None:
                raise InvalidArgumentError.of(
                    "page_token", f"{shown(after)} is not the id of a rescore; list again from the start"
                )
            found = await session.rescores.page(
                job_key=job.key if job else None, before_key=last.key if last else None, limit=size + 1
            )
        shown_ones = [self._shown(record) for record in found[:size]]
        return Page(shown_ones, shown_ones[-1].id if len(found) > size else "")

    async def cancel(self, rescore_id: str) -> Rescore:
        """Stops a rescore; one that is cancelled stays so. FailedPreconditionError (STATUS_FORBIDS)."""
        async with self._store.transaction() as session:
            record = await _required(session, rescore_id)
            if record.status in (RescoreStatus.COMPLETED, RescoreStatus.FAILED):
                raise FailedPreconditionError(
                    f"rescore {record.id} is {record.status}: only one that is not over can be cancelled",
                    reason="STATUS_FORBIDS",
                )
            if record.status is not RescoreStatus.CANCELLED:
                record = replace(
                    record, status=RescoreStatus.CANCELLED, status_detail="", finished_at=datetime.now(UTC)
                )
                await session.rescores.save(record)
        return self._shown(record)

    async def results(self, rescore_id: str, *, limit: int = 0, page_token: str = "") -> Page[RescoreResult]:
        """What was scored so far, oldest step first. `limit` 0 is 50, above 500 is 500."""
        size = page_size(limit, _DEFAULT_RESULTS)
        start = PartPosition.parse(page_token)
        async with self._store.snapshot() as session:
            record = await _required(session, rescore_id)
            # Every part holds at least one result.
            parts = await session.rescores.parts(record.key, first=start.number, limit=size + 1)
        return await self._files.page(parts, start, size)

    async def _work(self) -> None:
        while True:
            self._news.clear()
            async with self._store.snapshot() as session:
                waiting = [r for r in await session.rescores.open() if r.id not in self._running]
            for record in waiting[: RUNNING_AT_ONCE - len(self._running)]:
                task = asyncio.create_task(self._runner.run(record))
                self._running[record.id] = task
                task.add_done_callback(partial(self._ended, record.id))
            await self._news.wait()

    def _ended(self, rescore_id: str, _: asyncio.Task[None]) -> None:
        del self._running[rescore_id]
        self._news.set()

    async def _checked(
        self, data: Mapping[str, Any], job: JobRecord, known_violations: Sequence[FieldViolation]
    ) -> tuple[RescoreSpec, tuple[str, ...]]:
        spec, found = check_rescore_spec(data)
        violations = [*known_violations, *found]
        # Where it was deleted, the rewards themselves say which column they miss.
        dataset = await self._datasets.find(job.dataset_id)
        read = [ReadDataset(dataset)] if dataset is not None else []
        checked = await check_rewards(data.get("rewards"), violations, read, self._reward_servers)
        violations.extend(checked.violations)
        if violations:
            raise InvalidArgumentError([*violations, *checked.missing])
        if checked.missing:
            raise not_found(checked.missing)
        assert spec is not None
        return spec, checked.server_ids(spec.rewards)

    def _shown(self, record: RescoreRecord) -> Rescore:
        names = [binding.name for binding in record.spec.rewards]
        return Rescore(
            id=record.id,
            job_id=record.job_id,
            spec=record.spec,
            status=record.status,
            total_count=record.total_count,
            summary=Tally.model_validate_json(record.tally_json).summary(names),
            created_at=record.created_at,
            status_detail=record.status_detail
            if record.status.is_terminal
            else self._runner.detail(record.id),
            error=record.error,
            done_count=record.done_count,
            started_at=record.started_at,
            finished_at=record.finished_at,
        )


async def _files_in(session: Session, job: JobRecord, spec: RescoreSpec) -> Sequence[CompletionFile]:
    """The stored files of the range, oldest step first. FailedPreconditionError (NO_COMPLETIONS)."""
    files = await session.completion_files.on_line(
        job.key, await session.runs.line(job.key), through=spec.to_step or None
    )
    chosen = [file for file in reversed(files) if file.step >= spec.from_step]
    if not chosen:
        steps = f"between step {spec.from_step} and {spec.to_step or 'the newest'}"
        stored = (
            f"there are some from step {files[-1].step} to {files[0].step}"
            if files
            else "there are none up to there: a job keeps them where log_completions is true"
        )
        raise FailedPreconditionError(
            f"job {job.job.id} has no stored completions {steps}; {stored}", reason="NO_COMPLETIONS"
        )
    return chosen


async def _known(session: Session, request_id: str, digest: str) -> RescoreRecord | None:
    known = await session.rescores.find_request(request_id)
    if known is None:
        return None
    if known[1] != digest:
        raise FailedPreconditionError(
            f"request_id {shown(request_id)} belongs to rescore {known[0].id}, which asks for something "
            "else; a new rescore needs a new request_id",
            reason="REQUEST_ID_REUSED",
        )
    return known[0]


async def _required(session: Session, rescore_id: str) -> RescoreRecord:
    record = await session.rescores.find(rescore_id)
    if record is None:
        raise NotFoundError(f"there is no rescore {shown(rescore_id)}; list the rescores to see their ids")
    return record


async def _required_job(session: Session, job_id: str) -> JobRecord:
    record = await session.jobs.find(job_id)
    if record is None:
        raise NotFoundError(
            f"there is no training job {shown(job_id)}; list the jobs to see their ids", field="job_id"
        )
    return record


def _digest(job_id: str, data: Mapping[str, Any]) -> str:
    asked = json.dumps([job_id, data], sort_keys=True, default=repr)
    return hashlib.sha256(asked.encode("utf-8", "backslashreplace")).hexdigest()
