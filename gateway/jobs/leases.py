"""When each trainer was last heard of, and what that means for its jobs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.jobs import lifecycle
from gateway.jobs.details import StatusDetails
from gateway.jobs.job import JobError
from gateway.store import Store
from gateway.store.runs import RunRecord
from gateway.store.trainers import KnownTrainer
from plaudit.types.statuses import ErrorCode

log = structlog.get_logger(__name__)

_PERSIST_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.1
"""Between two looks at the clock, by a task that does nothing else."""
_OWN_ABSENCE_SECONDS: Final = 1.0
"""How much later than it should be the clock is looked at for the gateway to have been away itself."""


@dataclass(slots=True)
class _Contact:
    address: str
    at: float
    time: datetime
    persisted_at: float


class _PresenceClock:
    """A clock that stands still while the gateway is away: stopped, or without a processor.

    It is looked at every `_LOOK_SECONDS` as long as the event loop turns, whatever else takes its time: what
    is not looked at for longer, the loop did not turn.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        """`time` is the event loop's."""
        self._time = time
        self._absent_seconds = 0.0
        self._looked_at = math.inf

    def now(self) -> float:
        """Seconds, without those of absence."""
        time = self._time()
        absent_seconds = time - self._looked_at - _LOOK_SECONDS
        self._looked_at = time
        if absent_seconds > _OWN_ABSENCE_SECONDS:
            log.warning("the gateway itself was stopped for a while", seconds=round(absent_seconds, 1))
            self._absent_seconds += absent_seconds
        return time - self._absent_seconds


class Leases:
    """A trainer's lease on its runs is the last contact with it.

    While it is overdue (after `overdue_seconds`) the job says since when; after `lost_seconds` the trainer
    is lost and another run may take over. What a gateway was away itself does not count: it counts from its
    own start, and without the time in which it was stopped or had no processor.
    """

    def __init__(
        self,
        store: Store,
        details: StatusDetails,
        *,
        overdue_seconds: float,
        lost_seconds: float,
    ) -> None:
        """`check` is to be called every now and then, while `run` runs."""
        self._store = store
        self._details = details
        self._overdue_seconds = overdue_seconds
        self._lost_seconds = lost_seconds
        self._contacts: dict[str, _Contact] = {}
        loop = asyncio.get_running_loop()
        self._clock = _PresenceClock(loop.time)
        self._started_at = loop.time()

    async def run(self) -> None:
        """Notices when the gateway is away itself, until it is cancelled."""
        while True:
            self._clock.now()
            await asyncio.sleep(_LOOK_SECONDS)

    async def renew(self, trainer_id: str, address: str) -> None:
        """Notes that the trainer has answered."""
        now, time = self._clock.now(), datetime.now(UTC)
        contact = self._contacts.setdefault(trainer_id, _Contact(address, now, time, -_PERSIST_SECONDS))
        moved = contact.address != address
        contact.address, contact.at, contact.time = address, now, time
        if moved or now - contact.persisted_at >= _PERSIST_SECONDS:
            contact.persisted_at = now
            async with self._store.transaction() as session:
                await session.trainers.touch(KnownTrainer(trainer_id, address, time))

    async def check(self) -> None:
        """Tells the jobs of silent trainers what they wait for, and takes them from those that are lost."""
        async with self._store.snapshot() as session:
            runs = await session.runs.current()
            trainers = {trainer.id: trainer for trainer in await session.trainers.list()}
        now = self._clock.now()
        for run in runs:
            contact = self._contacts.get(run.trainer_id)
            silent_seconds = now - (contact.at if contact else self._started_at)
            if silent_seconds < self._overdue_seconds:
                continue
            if contact:
                address, last = contact.address, contact.time
            elif run.trainer_id in trainers:
                address, last = trainers[run.trainer_id].address, trainers[run.trainer_id].last_contact_at
            else:
                continue
            silence = f"trainer {address} has not answered since {last:%H:%M:%S} UTC"
            if self._is_taken(address, now):
                silence += "; another one, with another data directory, answers on its address"
            if silent_seconds >= self._lost_seconds:
                await self._lose(run, silence)
            else:
                seconds = round((datetime.now(UTC) - last).total_seconds())
                await self._details.set(run.job_key, run.id, f"{silence} ({seconds} s)")

    def _is_taken(self, address: str, now: float) -> bool:
        """Whether a trainer answers on the address; asked where the one that was there is silent."""
        return any(
            contact.address == address and now - contact.at < self._overdue_seconds
            for contact in self._contacts.values()
        )

    async def _lose(self, run: RunRecord, silence: str) -> None:
        async with self._store.transaction() as session:
            before = await session.jobs.find_by_key(run.job_key)
            if before is None or before.run_id != run.id:
                return
            log.warning("a trainer is lost", job_id=before.job.id, run_id=run.id, why=silence)
            time = datetime.now(UTC)
            after = lifecycle.after_loss(before, JobError(ErrorCode.TRAINER_LOST, silence), time)
            await lifecycle.save(session, before, after, time)
