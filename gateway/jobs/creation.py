"""Makes jobs of requests: reads, checks, stores, each request once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from gateway.access import current_caller_name
from gateway.events import LogLine, StatusChanged
from gateway.jobs.job import Job
from gateway.jobs.ports import DatasetCatalog, RewardServerCatalog
from gateway.jobs.requests import (
    NO_EFFECT,
    NO_FUNCTION,
    JobRequest,
    clone_data,
    continued,
    inherited_from,
    read_job_request,
    with_functions,
)
from gateway.jobs.starts import CheckpointSources
from gateway.jobs.submission import Submission, check_submission
from gateway.jobs.trainer_questions import JobCheck, JobChecks, NoTrainers
from gateway.store import Session, Store
from gateway.store.ids import new_id
from gateway.store.requests import KnownRequest
from plaudit.errors import (
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from plaudit.types.jobs import InitCheckpoint
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import shown

REQUEST_ID_LIFETIME: Final = timedelta(hours=24)

_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


class JobCreation:
    """Queues jobs."""

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
        """`on_change` is called after a job was queued. `open_jobs_per_token` None is unbounded.
        `job_checks` None: there are no trainers to ask.
        """
        self._job_checks = job_checks or NoTrainers()
        self._open_jobs_per_token = open_jobs_per_token
        self._store = store
        self._datasets = datasets
        self._reward_servers = reward_servers
        self._checkpoints = CheckpointSources(store, artifact_root)
        self._on_change = on_change
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(
        self,
        data: object,
        *,
        request_id: str | None,
        validate_only: bool,
        known_violations: Sequence[FieldViolation] = (),
    ) -> Job:
        """See JobService.create."""
        check_request_id(request_id)
        request = replace(read_job_request(data), spec_violations=tuple(known_violations))
        # What is left of a request that is refused may be like another one, of the same id.
        once = None if known_violations else request_id
        return await self._create_once(request, request.digest, once, validate_only=validate_only)

    async def _create_once(
        self, request: JobRequest, digest: str, request_id: str | None, *, validate_only: bool
    ) -> Job:
        """`digest` tells what is asked for: the same request id with another one is refused."""
        async with self._one_at_a_time(request_id):
            if request_id:
                async with self._store.snapshot() as session:
                    known = await _known_job(session, request_id, digest)
                if known is not None:
                    return known
            return await self._create(request, digest, request_id, validate_only=validate_only)

    async def _must_have_room(self, session: Session, maker: str) -> None:
        most = self._open_jobs_per_token
        if maker and most is not None and await session.jobs.count_open(maker) >= most:
            raise ResourceExhaustedError(
                f'{most:,} jobs of the token "{maker}" are not over, the most that is accepted; wait for '
                "some, cancel some, or raise limits.open_jobs of the gateway",
                reason="TOO_MANY_JOBS",
            )

    async def clone(
        self, job_id: str, overrides: object, *, request_id: str | None, validate_only: bool
    ) -> Job:
        """See JobService.clone."""
        check_request_id(request_id)
        if not isinstance(overrides, Mapping):
            raise InvalidArgumentError.of("(request)", f"{shown(overrides)} is no object; send one")
        async with self._store.snapshot() as session:
            record = await session.jobs.find(job_id)
        if record is None:
            raise unknown_job(job_id)
        request = read_job_request(clone_data(record.job.spec.model_dump(mode="json"), overrides))
        # A clone that asks for what a creation asked for is another call all the same.
        digest = hashlib.sha256(f"clone {job_id} {request.digest}".encode()).hexdigest()
        return await self._create_once(request, digest, request_id, validate_only=validate_only)

    async def _create(
        self, request: JobRequest, digest: str, request_id: str | None, *, validate_only: bool
    ) -> Job:
        spec_data, notes, missing = await self._resolved(request)
        submission = await self._checked(request, spec_data, missing)
        check = submission.check
        notes.extend(_notes_of(check))
        start, spec = submission.start, submission.spec
        if start is not None:
            # Which checkpoint it is stands from now on, whatever the other job does.
            spec = spec.model_copy(update={"resume_from": start.checkpoint_id})
        time = datetime.now(UTC)
        job = Job(
            id="" if validate_only else new_id("job"),
            spec=spec,
            status=JobStatus.QUEUED,
            created_at=time,
            updated_at=time,
            gpu_requested=request.gpu_requested,
            requires_heartbeat=request.requires_heartbeat,
            created_by=current_caller_name(),
            memory=check.memory,
        )
        if validate_only:
            return replace(job, status_detail="; ".join(_worth_knowing(check)))
        inits = await self._checkpoints.adopt(job.id, start.chain) if start is not None else ()
        created = False
        try:
            async with self._store.transaction() as session:
                if request_id and (known := await _known_job(session, request_id, digest)):
                    return known
                await self._must_have_room(session, job.created_by)
                key = await _insert(session, job, submission, inits)
                for note in notes:
                    await session.events.append(key, job.id, note, time)
                if request_id:
                    await session.requests.prune(before=time - REQUEST_ID_LIFETIME)
                    await session.requests.insert(request_id, KnownRequest(key, job.id, digest), time)
            created = True
        finally:
            if inits and not created:
                await self._checkpoints.abandon(job.id)
        self._on_change()
        return job

    async def _resolved(self, request: JobRequest) -> tuple[object, list[LogLine], Sequence[FieldViolation]]:
        """The spec's data with what the request takes from elsewhere, what is to be told of it, and what is
        not there.
        """
        notes = [
            LogLine("info", f"{name} has no effect here: {NO_EFFECT[name]}", f'{{"field": "{name}"}}')
            for name in request.no_effect
        ]
        if any(request.function_ids):
            spec_data, missing = await self._with_functions(request)
            return spec_data, notes, missing
        source = inherited_from(request.spec_data)
        if source is None or request.names_rewards or request.violations:
            return request.spec_data, notes, ()
        async with self._store.snapshot() as session:
            record = await session.jobs.find(source)
        if record is None or not record.job.spec.rewards:
            return request.spec_data, notes, ()
        assert isinstance(request.spec_data, Mapping)
        notes.append(LogLine("info", f"the rewards are those of {source}, which this job starts from"))
        return continued(request.spec_data, record.job.spec.model_dump(mode="json")), notes, ()

    async def _with_functions(self, request: JobRequest) -> tuple[object, Sequence[FieldViolation]]:
        """The spec's data with the sources of the uploaded functions, and those that are not there, for which
        one stands that does nothing, so that the rest of the job can be checked.
        """
        found: list[tuple[str, Mapping[str, Any]] | None] = []
        missing: list[FieldViolation] = []
        async with self._store.snapshot() as session:
            for field, id_or_name in zip(request.reward_fields, request.function_ids, strict=True):
                function = await session.reward_functions.find(id_or_name) if id_or_name else None
                if function is None:
                    missing.append(
                        FieldViolation(
                            field,
                            f"there is no reward function {shown(id_or_name)}; upload it, or list the reward "
                            "functions to see their ids",
                        )
                    )
                    found.append(("reward", {"source": NO_FUNCTION}))
                    continue
                config = {"source": function.source, "filename": function.filename, "format": function.format}
                found.append((function.name, config))
        return with_functions(request.spec_data, found), missing

    async def _checked(
        self, request: JobRequest, spec_data: object, missing: Sequence[FieldViolation]
    ) -> Submission:
        """The checked job; `missing` is what the request names and is not there. Raises InvalidArgumentError
        with everything, or NotFoundError where nothing is wrong but what is not there.
        """
        lines = [f"{violation.field}: {violation.message}" for violation in missing]
        try:
            submission = await check_submission(
                spec_data,
                self._datasets,
                self._reward_servers,
                self._checkpoints,
                self._job_checks,
                request.spec_violations,
            )
        except InvalidArgumentError as error:
            raise request.refusal([*error.violations, *missing]) from None
        except NotFoundError as error:
            if request.violations:
                told = FieldViolation(error.field, error.message)
                raise request.refusal([told, *missing]) from None
            named = request.not_found(error)
            raise NotFoundError("\n".join([named.message, *lines]), field=named.field) from None
        if request.violations:
            raise request.refusal(missing)
        if missing:
            raise NotFoundError("\n".join(lines), field=missing[0].field)
        return submission

    @contextlib.asynccontextmanager
    async def _one_at_a_time(self, request_id: str | None) -> AsyncIterator[None]:
        """Lets the repetitions of a request wait for the first one instead of checking it all over."""
        if not request_id:
            yield
            return
        lock = self._asking.setdefault(request_id, asyncio.Lock())
        async with lock:
            yield


def check_request_id(request_id: str | None) -> None:
    """Raises InvalidArgumentError where it can be no request id."""
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise InvalidArgumentError.of(
            "request_id", f"{shown(request_id)} is refused; send a UUID, or any 1 to 128 visible characters"
        )


def unknown_job(job_id: str) -> NotFoundError:
    """The error where there is no such job."""
    return NotFoundError(f"there is no training job {shown(job_id)}; list the jobs to see their ids")


def _worth_knowing(check: JobCheck) -> list[str]:
    """What is told of a job that is only checked: what may go wrong, and why its memory is not known."""
    unknown = [_unknown_memory(check)] if check.memory is None and check.unknown_reason else []
    return [*check.warnings, *unknown]


def _unknown_memory(check: JobCheck) -> str:
    return f"memory: not known before the run has loaded its model ({check.unknown_reason})"


def _notes_of(check: JobCheck) -> list[LogLine]:
    """What is told of it in the job's events."""
    notes = [LogLine("warning", warning) for warning in check.warnings]
    if check.memory is not None:
        notes.append(LogLine("info", f"memory: {check.memory.describe()}", check.memory.model_dump_json()))
    elif check.unknown_reason:
        notes.append(LogLine("info", _unknown_memory(check)))
    return notes


async def _insert(session: Session, job: Job, submission: Submission, inits: Sequence[InitCheckpoint]) -> int:
    """Adds the job, and returns its key; what the check had found must still be there."""
    if await session.datasets.find(submission.dataset_id) is None:
        raise NotFoundError(
            f"dataset {shown(submission.spec.dataset_id)} was deleted meanwhile", field="dataset_id"
        )
    if submission.eval_dataset_id and await session.datasets.find(submission.eval_dataset_id) is None:
        raise NotFoundError(
            "the dataset of hyperparameters.eval_dataset_id was deleted meanwhile",
            field="hyperparameters.eval_dataset_id",
        )
    for binding, server_id in zip(submission.spec.rewards, submission.reward_server_ids, strict=True):
        if await session.reward_servers.find(server_id) is None:
            raise NotFoundError(
                f"reward server {shown(binding.server)} was deleted meanwhile", field="rewards"
            )
    record = await session.jobs.insert(
        job,
        dataset_id=submission.dataset_id,
        eval_dataset_id=submission.eval_dataset_id,
        reward_server_ids=submission.reward_server_ids,
    )
    await session.init_checkpoints.insert(record.key, inits)
    if job.memory is not None:
        await session.jobs.note_memory(record.key, job.memory)
    await session.events.append(record.key, job.id, StatusChanged(job.status), job.created_at)
    return record.key


async def _known_job(session: Session, request_id: str, digest: str) -> Job | None:
    known = await session.requests.find(request_id, since=datetime.now(UTC) - REQUEST_ID_LIFETIME)
    if known is None:
        return None
    if known.spec_sha256 != digest:
        raise FailedPreconditionError(
            f"request_id {shown(request_id)} belongs to job {known.job_id}, which asks for something else "
            "or was made by another call; a new job needs a new request_id",
            reason="REQUEST_ID_REUSED",
        )
    record = None if known.job_key is None else await session.jobs.find_by_key(known.job_key)
    if record is None:
        raise FailedPreconditionError(
            f"request_id {shown(request_id)} made job {known.job_id}, which was deleted; a new job needs a "
            "new request_id",
            reason="REQUEST_ID_REUSED",
        )
    return record.job
