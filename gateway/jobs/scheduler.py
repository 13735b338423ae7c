"""Gives queued jobs, oldest first, to trainers with a free place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.events import AttemptStarted
from gateway.jobs import lifecycle
from gateway.jobs.checkpoint_files import is_gone
from gateway.jobs.details import StatusDetails
from gateway.jobs.job import checkpoint_id
from gateway.jobs.run_specs import Unresolved, resolve
from gateway.jobs.series import newest_metrics
from gateway.jobs.transitions import JobEvent, status_after
from gateway.store import Session, Store
from gateway.store.checkpoints import CheckpointRecord
from gateway.store.ids import new_id
from gateway.store.jobs import JobRecord
from plaudit.types.statuses import JobStatus

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TrainerPlaces:
    """What a registered trainer can take.

    `trainer_id` is None while it does not answer; `problem` says why, and is "" where it was not asked yet.
    `places` counts all its runs; `taken_by_others` those that run there and are not in this store. `version`
    is that of its software, "" while it does not answer.
    """

    address: str
    trainer_id: str | None = None
    places: int = 0
    taken_by_others: int = 0
    problem: str = ""
    version: str = ""


class Scheduler:
    """Assigns jobs. The intent (run, attempt, trainer) is stored before any trainer is asked."""

    def __init__(self, store: Store, details: StatusDetails, artifact_root: Path) -> None:
        self._store = store
        self._details = details
        self._artifact_root = artifact_root

    async def assign(self, trainers: Sequence[TrainerPlaces]) -> set[str]:
        """Assigns what can be assigned, tells the other jobs what they wait for; ids of trainers with new
        runs.
        """
        assigned: set[str] = set()
        async with self._store.snapshot() as session:
            queued = await session.jobs.with_status(JobStatus.QUEUED)
        for position, job in enumerate(queued):
            trainer_id = await self._assign(job.key, trainers)
            if trainer_id is None:
                why = _why_waiting(trainers)
                for waiting in queued[position:]:
                    if waiting.job.status_detail != why:
                        await self._details.set(waiting.key, None, why)
                break
            assigned.add(trainer_id)
        return assigned

    async def _assign(self, job_key: int, trainers: Sequence[TrainerPlaces]) -> str | None:
        """The trainer that got the job, or "" where the job needs none any more; None where no place is
        free.
        """
        async with self._store.transaction() as session:
            record = await session.jobs.find_by_key(job_key)
            if record is None or record.job.status is not JobStatus.QUEUED:
                return ""
            free = await _free_places(session, trainers)
            if not free:
                return None
            trainer_id = max(free, key=lambda trainer: free[trainer])
            await self._start_attempt(session, record, trainer_id)
            return trainer_id

    async def _start_attempt(self, session: Session, record: JobRecord, trainer_id: str) -> None:
        time = datetime.now(UTC)
        status = status_after(record.job.status, JobEvent.ASSIGNED)
        assert status is not None
        try:
            spec = await resolve(session, record)
        except Unresolved as unresolved:
            failed = lifecycle.moved(record, JobStatus.FAILED, time, error=unresolved.error)
            await lifecycle.save(session, record, failed, time)
            return
        checkpoint = await self._newest_checkpoint(session, record, time)
        from_step = checkpoint.step if checkpoint else 0
        attempt = record.job.attempt + 1
        run_id = new_id("run")
        await session.runs.insert(
            run_id,
            job_key=record.key,
            attempt=attempt,
            trainer_id=trainer_id,
            from_step=from_step,
            checkpoint_uri=checkpoint.uri if checkpoint else "",
            spec_json=spec.model_dump_json(),
            created_at=time,
        )
        await session.events.append(record.key, record.job.id, AttemptStarted(attempt, from_step), time)
        after = lifecycle.moved(record, status, time)
        job = replace(
            after.job,
            attempt=attempt,
            current_step=from_step,
            metrics=await newest_metrics(session, record, through=from_step),
            latest_checkpoint_id=checkpoint_id(record.job.id, from_step) if checkpoint else "",
        )
        await lifecycle.save(session, record, replace(after, run_id=run_id, job=job), time)
        log.info("a job is assigned", job_id=job.id, run_id=run_id, attempt=attempt, trainer_id=trainer_id)

    async def _newest_checkpoint(
        self, session: Session, record: JobRecord, time: datetime
    ) -> CheckpointRecord | None:
        """The newest checkpoint whose files are there; the store notes which are gone."""
        line = await session.runs.line(record.key)
        while checkpoint := await session.checkpoints.newest(record.key, line):
            if not await asyncio.to_thread(is_gone, self._artifact_root, checkpoint.uri):
                return checkpoint
            log.warning("a checkpoint is gone", job_id=record.job.id, uri=checkpoint.uri)
            await session.checkpoints.mark_removed(record.key, checkpoint.uri, time)
        return None


async def _free_places(session: Session, trainers: Sequence[TrainerPlaces]) -> Mapping[str, int]:
    free = {}
    for trainer in trainers:
        if trainer.trainer_id is not None:
            ours = len(await session.runs.open(trainer.trainer_id))
            places = trainer.places - trainer.taken_by_others - ours
            if places > 0:
                free[trainer.trainer_id] = places
    return free


def _why_waiting(trainers: Sequence[TrainerPlaces]) -> str:
    if not trainers:
        return "no trainer is registered; name one in the gateway's settings (trainers)"
    if any(trainer.trainer_id is None and not trainer.problem for trainer in trainers):
        return ""
    away = [f"{trainer.address} ({trainer.problem})" for trainer in trainers if trainer.trainer_id is None]
    if len(away) == len(trainers):
        return f"no trainer answers: {', '.join(away)}"
    full = [trainer.address for trainer in trainers if trainer.trainer_id is not None]
    text = f"waits for a free place on trainer {', '.join(full)}"
    return f"{text}; does not answer: {', '.join(away)}" if away else text
