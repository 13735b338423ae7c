"""Keeps the store and one trainer in agreement, whichever of the two was away."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from gateway.jobs import lifecycle
from gateway.jobs.batches import in_batches
from gateway.jobs.details import StatusDetails
from gateway.jobs.ingest import ingest
from gateway.jobs.ingest_troubles import IngestTroubles
from gateway.jobs.job import JobError
from gateway.jobs.journal import ReportedRun, TrainerInfo
from gateway.jobs.leases import Leases
from gateway.jobs.scheduler import TrainerPlaces
from gateway.jobs.trainer_access import TrainerDoor, open_door
from gateway.jobs.trainer_client import UNREADABLE_JOURNAL, TrainerClient
from gateway.store import Store
from gateway.store.jobs import JobRecord
from gateway.store.runs import RunPhase, RunRecord
from plaudit.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PlauditError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from plaudit.types.statuses import ErrorCode, JobStatus, RunState

log = structlog.get_logger(__name__)

_ENTRIES_PER_TRANSACTION: Final = 256
_RETRY_SECONDS: Final = 0.5

Change = Callable[[JobRecord, datetime], JobRecord]


@dataclass(frozen=True, slots=True)
class _Held:
    """A run of this trainer in the store, its job, and what the trainer says of it."""

    run: RunRecord
    record: JobRecord
    reported: ReportedRun | None = None

    @property
    def is_current(self) -> bool:
        """Whether the job goes by this run; else it is an attempt that another one has replaced."""
        return self.record.run_id == self.run.id

    @property
    def wanted(self) -> JobStatus | None:
        """What the job's status asks of its run; None: to be gone."""
        return self.record.job.status if self.is_current else None


class TrainerLink:
    """The gateway's side of one registered trainer.

    Polls what the trainer runs, follows the journal of each run from the entry that is stored, and repeats
    what is asked of a run (start, pause, cancel, delete) until it took effect. Nothing is kept here that is
    not in the store: a gateway that was killed goes on where it was.
    """

    def __init__(
        self,
        address: str,
        store: Store,
        artifact_root: Path,
        leases: Leases,
        details: StatusDetails,
        links: MutableMapping[str, TrainerLink],
        *,
        poll_seconds: float,
        on_change: Callable[[], None],
        door: TrainerDoor = open_door,
    ) -> None:
        """`links` is shared by all links: who speaks with which trainer, by trainer id. `on_change` is called
        where places may have become free. `door` tells what it takes to be let in.
        """
        self.address = address
        self._store = store
        self._artifact_root = artifact_root
        self._leases = leases
        self._details = details
        self._troubles = IngestTroubles(store)
        self._links = links
        self._poll_seconds = poll_seconds
        self._on_change = on_change
        self._client = TrainerClient(address, door)
        self._info: TrainerInfo | None = None
        self._taken_by_others = 0
        self._problem = ""
        self._nudge = asyncio.Event()
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._actions: dict[str, asyncio.Task[None]] = {}
        self._starting: set[str] = set()
        self._others: set[str] = set()

    def wake(self) -> None:
        """Something is asked of a run: act now rather than at the next poll."""
        self._nudge.set()

    @property
    def places(self) -> TrainerPlaces:
        """What the trainer can take, as far as is known now."""
        if self._info is None:
            return TrainerPlaces(self.address, problem=self._problem)
        return TrainerPlaces(
            self.address,
            self._info.trainer_id,
            self._info.max_concurrent_runs,
            self._taken_by_others,
            version=self._info.trainer_version,
        )

    async def run(self) -> None:
        """Speaks with the trainer until it is cancelled; a trainer that is away is asked again and again."""
        try:
            while True:
                try:
                    await self._speak()
                except PlauditError as error:
                    self._away(error.message)
                except Exception:
                    # A bug, or a full disk: whichever, the other trainers and the next try must not suffer.
                    log.exception("unexpected error while speaking with a trainer", trainer=self.address)
                    self._away("unexpected error; see the gateway's log")
                await asyncio.sleep(_RETRY_SECONDS * (1 + random.random()))
        finally:
            await self._client.close()

    def _away(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("a trainer does not answer", trainer=self.address, why=problem)
        self._problem = problem

    async def _speak(self) -> None:
        info = await self._client.get_info()
        other = self._links.setdefault(info.trainer_id, self)
        if other is not self:
            raise FailedPreconditionError(
                f"it is the trainer at {other.address} under another address; register it once"
            )
        try:
            log.info("a trainer answers", trainer=self.address, trainer_id=info.trainer_id)
            while True:
                self._nudge.clear()
                # Before the store is read: what a task does from here on, the answer below may not show, so
                # that its run is left alone until the next round.
                self._drop_finished()
                # Read before the trainer is asked: what had been started by then must be in its answer.
                held = await self._held_runs(info.trainer_id)
                reported = {run.run_id: run for run in await self._client.list_runs()}
                # Asked after it: a trainer that has taken the address meanwhile does not know these runs.
                if (await self._client.get_info()).trainer_id != info.trainer_id:
                    raise UnavailableError("another trainer answers on its address")
                await self._leases.renew(info.trainer_id, self.address)
                await self._agree([replace(one, reported=reported.get(one.run.id)) for one in held])
                ours = {one.run.id for one in held} | await self._forget_deleted(info.trainer_id, reported)
                await self._meet_others(reported, ours)
                self._info = info
                self._on_change()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await self._nudge.wait()
        finally:
            self._info = None
            del self._links[info.trainer_id]
            await _end([*self._followers.values(), *self._actions.values()])
            self._followers.clear()
            self._actions.clear()

    def _drop_finished(self) -> None:
        for tasks in (self._followers, self._actions):
            for run_id in [run_id for run_id, task in tasks.items() if task.done()]:
                del tasks[run_id]

    async def _held_runs(self, trainer_id: str) -> list[_Held]:
        async with self._store.snapshot() as session:
            held = []
            for run in await session.runs.open(trainer_id):
                record = await session.jobs.find_by_key(run.job_key)
                assert record is not None
                held.append(_Held(run, record))
            return held

    async def _agree(self, held: Sequence[_Held]) -> None:
        """Does, and has done, what is due for each run that this trainer should hold."""
        for one in held:
            if one.run.id in self._starting and one.wanted is not JobStatus.PROVISIONING:
                # A start that hangs must not hold up the cancel or pause that overtakes it.
                await _end([self._actions.pop(one.run.id)])
            if one.run.id not in self._actions and (action := self._due_action(one)) is not None:
                self._actions[one.run.id] = self._task(one.run.id, action)
            if one.run.phase is RunPhase.STARTED and one.reported and one.run.id not in self._followers:
                self._followers[one.run.id] = self._task(one.run.id, self._follow(one.run))
            await self._note_detail(one)

    def _due_action(self, one: _Held) -> Coroutine[Any, Any, None] | None:
        run, reported = one.run, one.reported
        if run.phase is RunPhase.ENDED:
            return self._delete(run)
        if run.phase is RunPhase.ASSIGNED:
            if one.wanted is JobStatus.PROVISIONING:
                return self._start(one)
            if reported is None:
                return self._prevent(run)
            return self._settle(run, RunPhase.STARTED, _came_to(RunState.STARTING))
        if reported is None:
            return self._settle(run, RunPhase.FORGOTTEN, self._lost("does not know the run any more"))
        if one.wanted in (None, JobStatus.CANCELLING):
            stops = reported.state.is_terminal or reported.state is RunState.CANCELLING
            return None if stops else self._cancel(run.id)
        if one.wanted is JobStatus.PAUSING and reported.state in (RunState.STARTING, RunState.RUNNING):
            return self._pause(run)
        return None

    def _task(self, run_id: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def contained() -> None:
            try:
                await work
            except (PlauditError, sqlite3.Error) as error:
                # What did not succeed is still due, and is tried again at the next poll.
                log.warning("will be tried again", trainer=self.address, run_id=run_id, why=str(error))
            except Exception:
                log.exception("unexpected error about a run", trainer=self.address, run_id=run_id)

        return asyncio.create_task(contained())

    async def _follow(self, run: RunRecord) -> None:
        entries = self._client.follow_journal(run.id, after_sequence=run.last_sequence)
        try:
            async with aclosing(in_batches(entries, _ENTRIES_PER_TRANSACTION)) as batches:
                async for batch in batches:
                    try:
                        run = await ingest(self._store, self._artifact_root, run.id, batch, on_stop=self.wake)
                    except Exception as error:
                        await self._troubles.note(run, error)
                        raise
                    self._troubles.over(run.id)
                    if run.phase is RunPhase.ENDED:
                        self.wake()
                        return
        except InternalError as error:
            if error.reason == UNREADABLE_JOURNAL:
                await self._troubles.note(run, error)
            raise
        except NotFoundError:
            return  # the next poll does not list the run, and draws the conclusion
        except OutOfRangeError as error:
            await self._client.cancel_run(run.id)
            await self._settle(run, RunPhase.ENDED, self._lost(f"has another journal of it: {error.message}"))

    async def _start(self, one: _Held) -> None:
        run, job_id = one.run, one.record.job.id
        self._starting.add(run.id)
        try:
            await self._client.start_run(
                run_id=run.id,
                job_id=job_id,
                attempt=run.attempt,
                spec_json=run.spec_json,
                checkpoint_uri=run.checkpoint_uri,
            )
        except (UnavailableError, DeadlineExceededError, ResourceExhaustedError) as error:
            waits_for = f"trainer {self.address} cannot start it yet: {error.message}"
            await self._details.set(run.job_key, run.id, waits_for)
        except (InvalidArgumentError, UnimplementedError) as error:
            cause = JobError(ErrorCode.CONFIG_ERROR, f"trainer {self.address} refused it: {error.message}")
            await self._settle(
                run,
                RunPhase.FORGOTTEN,
                lambda record, time: lifecycle.after_run_state(record, RunState.FAILED, time, error=cause),
            )
        except PlauditError as error:
            if error.reason == "RUN_CANCELLED":
                await self._settle(run, RunPhase.FORGOTTEN, _came_to(RunState.CANCELLED))
            else:
                await self._settle(run, RunPhase.FORGOTTEN, self._lost(f"refused it: {error.message}"))
        else:
            await self._settle(run, RunPhase.STARTED, _came_to(RunState.STARTING))
        finally:
            self._starting.discard(run.id)

    async def _prevent(self, run: RunRecord) -> None:
        """Keeps a run of which no StartRun was answered from starting, or follows what did start."""
        reported = await self._client.cancel_run(run.id)
        if reported.last_sequence > 0:
            await self._settle(run, RunPhase.STARTED, _came_to(RunState.STARTING))
        else:
            await self._settle(run, RunPhase.FORGOTTEN, _came_to(RunState.CANCELLED))

    async def _cancel(self, run_id: str) -> None:
        await self._client.cancel_run(run_id)

    async def _pause(self, run: RunRecord) -> None:
        # A run that can not be paused any more tells by its journal what became of it instead.
        with contextlib.suppress(FailedPreconditionError):
            await self._client.pause_run(run.id)

    async def _delete(self, run: RunRecord) -> None:
        await self._client.delete_run(run.id)
        await self._settle(run, RunPhase.FORGOTTEN, lambda record, time: record)

    async def _settle(self, run: RunRecord, phase: RunPhase, change: Change) -> None:
        """Moves the run on and, where the job still goes by it, the job."""
        self._troubles.over(run.id)
        time = datetime.now(UTC)
        async with self._store.transaction() as session:
            await session.runs.set_phase(run.id, phase)
            before = await session.jobs.find_by_key(run.job_key)
            if before is not None and before.run_id == run.id:
                await lifecycle.save(session, before, change(before, time), time)
        self.wake()

    def _lost(self, why: str) -> Change:
        cause = JobError(ErrorCode.PROCESS_DIED, f"trainer {self.address} {why}")
        return lambda record, time: lifecycle.after_loss(record, cause, time)

    async def _note_detail(self, one: _Held) -> None:
        # Why an alert pauses the job stays told until it has paused.
        if one.is_current and one.reported is not None and not one.record.stop_reason:
            detail = self._troubles.detail(one.run.id) or one.reported.status_detail
            if not one.reported.state.is_terminal and detail != one.record.job.status_detail:
                await self._details.set(one.run.job_key, one.run.id, detail)

    async def _forget_deleted(self, trainer_id: str, reported: Mapping[str, ReportedRun]) -> Set[str]:
        """Ends and deletes the runs of jobs that were deleted; returns their ids."""
        async with self._store.snapshot() as session:
            deleted = await session.removals.runs(trainer_id)
        for run_id in deleted:
            run = reported.get(run_id)
            if run is None:
                async with self._store.transaction() as session:
                    await session.removals.run_is_gone(run_id)
            elif run_id not in self._actions:
                work = self._client.delete_run if run.state.is_terminal else self._client.cancel_run
                self._actions[run_id] = self._task(run_id, _unanswered(work(run_id)))
        return set(deleted)

    async def _meet_others(self, reported: Mapping[str, ReportedRun], ours: Set[str]) -> None:
        """Runs that are not in the store: one of a job that is, as after a restore, is cancelled; any other
        is another gateway's, and left alone.
        """
        others = [run for run in reported.values() if run.run_id not in ours and not run.state.is_terminal]
        self._taken_by_others = len(others)
        for run in others:
            async with self._store.snapshot() as session:
                job_is_known = await session.jobs.find(run.job_id) is not None
            if job_is_known and run.run_id not in self._actions:
                self._actions[run.run_id] = self._task(run.run_id, self._cancel(run.run_id))
            if run.run_id not in self._others:
                log.warning(
                    "a trainer runs what this store does not know",
                    trainer=self.address,
                    run_id=run.run_id,
                    job_id=run.job_id,
                    cancelled=job_is_known,
                )
        self._others = {run.run_id for run in others}


async def _unanswered(call: Awaitable[object]) -> None:
    await call


def _came_to(state: RunState) -> Change:
    return lambda record, time: lifecycle.after_run_state(record, state, time)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
