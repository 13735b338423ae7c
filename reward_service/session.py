"""The engine of the Score stream: window, dedupe, replay, cancel, deadlines, drain. It knows no reward.

A session outlives its streams: work goes on while a broken stream is away, is done once, and what came of it
is replayed to the stream that comes back. The conversation stands in protos/plaudit/reward/v1.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from plaudit.errors import (
    FieldViolation,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from reward_service._session import RETRY_AFTER_SECONDS, Selection, Session, SessionRequest
from reward_service._stream import Stream
from reward_service._work import MAX_ID_LENGTH, Batch, InFlight, Results, Scorer, Work, problems_of
from reward_service.limits import ServerLimits

log = structlog.get_logger(__name__)


class Select(Protocol):
    """Makes the scorer of selections, for a job."""

    async def __call__(self, selections: Sequence[Selection], job_id: str, *, known: bool) -> Scorer:
        """Raises InvalidArgumentError that names every wrong field of `rewards`.

        Where the selections are `known`, as those of a session that comes back, they are not checked again.
        Raises UnavailableError where they cannot be checked now.
        """


class ScoreEngine:
    """All sessions of a server."""

    def __init__(self, select: Select, limits: ServerLimits) -> None:
        self._select = select
        self._limits = limits
        self._window = limits.window
        # Detached sessions move to the end, so that the first detached one is the longest away.
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._grace: float | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._attached = 0
        self._single_calls = 0

    @property
    def session_count(self) -> int:
        """Sessions that are attached to a stream or remembered."""
        return len(self._sessions)

    async def open(self, request: SessionRequest) -> tuple[Session, Stream]:
        """Opens or resumes a session on a new stream.

        Raises InvalidArgumentError with every wrong field, UnavailableError while the server goes away or
        where a config cannot be checked now, and ResourceExhaustedError where there are too many sessions.
        """
        if self._grace is not None:
            raise self._going_away()
        scorer = await self._checked_scorer(request)
        if self._grace is not None:
            raise self._going_away()
        session = self._sessions.get(request.session_id)
        if session is None:
            self._make_room()
            session = self._sessions[request.session_id] = Session(self._limits)
        if session.forget_timer is not None:
            session.forget_timer.cancel()
            session.forget_timer = None
        if session.stream is None:
            self._attached += 1
            self._note_load()
        stream = session.attach(request, scorer, self._window)
        log.info(
            "session opened",
            session_id=request.session_id,
            job_id=request.job_id,
            rewards=[selection.name for selection in request.selections],
            pending=len(request.pending_batch_ids),
        )
        return session, stream

    def submit(self, session: Session, stream: Stream, batch: Batch) -> None:
        """A batch came on `stream`; one that is no longer its session's is not heard."""
        if session.stream is stream:
            session.submit(batch, draining=self._grace is not None)

    def cancel(self, session: Session, stream: Stream, batch_id: str) -> None:
        """A cancel came on `stream`."""
        if session.stream is stream:
            session.cancel(batch_id)

    def detach(self, session: Session, stream: Stream) -> None:
        """A stream is over, however it ended. Its session is kept for the retention."""
        if session.stream is not stream or session.request is None:
            return
        session.stream = None
        self._attached -= 1
        self._note_load()
        session_id = session.request.session_id
        log.info("session left", session_id=session_id)
        self._sessions.move_to_end(session_id)
        retention = self._limits.result_retention_seconds
        if retention > 0 and self._grace is None:
            loop = asyncio.get_running_loop()
            session.forget_timer = loop.call_later(retention, self._forget, session_id)
        else:
            self._forget(session_id)

    async def check(self, selections: Sequence[Selection]) -> Mapping[str, tuple[str, ...]]:
        """Checks rewards and configs; by key, the dataset columns that each needs.

        Raises InvalidArgumentError with every wrong field, UnavailableError where a config cannot be checked
        now.
        """
        return (await self._select(selections, "", known=False)).required_columns

    async def score_once(
        self, selections: Sequence[Selection], batch: Batch, timeout: float | None
    ) -> list[Results]:
        """Scores one batch without a session, within `timeout` seconds; what is open then ends as TIMEOUT."""
        started = time.monotonic()
        problems: list[FieldViolation] = []
        keys: Sequence[str] = [selection.key for selection in selections]
        scorer: Scorer | None = None
        try:
            scorer = await self._select(selections, "", known=False)
        except InvalidArgumentError as error:
            problems.extend(error.violations)
        problems.extend(FieldViolation(f"batch.{v.field}", v.message) for v in problems_of(batch, keys))
        if problems or scorer is None:
            raise InvalidArgumentError(problems)
        if timeout is not None:
            timeout -= time.monotonic() - started
        if batch.completion_count > self._limits.max_batch_completions:
            raise ResourceExhaustedError(
                f"the batch has {batch.completion_count} completions; a batch has at most "
                f"{self._limits.max_batch_completions}",
                reason="BATCH_TOO_LARGE",
            )
        if self._grace is not None:
            raise self._going_away()
        if self._single_calls >= self._limits.max_sessions:
            raise ResourceExhaustedError(
                f"{self._single_calls} calls are being served; come again, or use Score, which queues",
                reason="TOO_MANY_CALLS",
                retry_after=RETRY_AFTER_SECONDS,
            )
        done = asyncio.Event()
        work = Work(
            batch,
            batch.keys_among(keys),
            InFlight(),
            lambda work, _: None if work.open_count else done.set(),
        )
        self._single_calls += 1
        self._note_load()
        try:
            work.begin(scorer, batch, self._limits.batch_timeout_seconds if timeout is None else timeout)
            await done.wait()
            return work.hand_over(work.recorded())
        finally:
            self._single_calls -= 1
            self._note_load()
            work.abandon()

    def change_window(self, window: int) -> None:
        """Announces another window to every session."""
        self._window = window
        for session in self._sessions.values():
            if session.stream is not None:
                session.stream.change_window(window)

    async def drain(self, grace: float) -> None:
        """Takes no new batch, serves what was accepted for at most `grace` seconds, and ends every stream."""
        self._grace = grace
        for session in list(self._sessions.values()):
            if session.stream is not None:
                session.stream.drain(grace, self._going_away())
            else:
                session.abandon()
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            log.info("the grace is over", streams_left=self._attached, calls_left=self._single_calls)
        for session in list(self._sessions.values()):
            if session.stream is not None:
                session.stream.end(self._going_away())
            session.abandon()

    def _note_load(self) -> None:
        if self._attached or self._single_calls:
            self._idle.clear()
        else:
            self._idle.set()

    async def _checked_scorer(self, request: SessionRequest) -> Scorer:
        problems: list[FieldViolation] = []
        if not request.session_id:
            problems.append(
                FieldViolation("session_id", "is empty; give each run and replica an id, for example a UUID")
            )
        elif len(request.session_id) > MAX_ID_LENGTH:
            problems.append(FieldViolation("session_id", f"is longer than {MAX_ID_LENGTH} characters"))
        session = self._sessions.get(request.session_id)
        known = session is not None and session.has_selections(request.selections)
        try:
            scorer = await self._select(request.selections, request.job_id, known=known)
        except InvalidArgumentError as error:
            raise InvalidArgumentError([*problems, *error.violations]) from None
        if problems:
            raise InvalidArgumentError(problems)
        return scorer

    def _make_room(self) -> None:
        if len(self._sessions) < self._limits.max_sessions:
            return
        for session_id, session in self._sessions.items():
            if session.stream is None:
                self._forget(session_id)
                return
        raise ResourceExhaustedError(
            f"{len(self._sessions)} sessions are open, which is the most that this server takes",
            reason="TOO_MANY_SESSIONS",
            retry_after=RETRY_AFTER_SECONDS,
        )

    def _forget(self, session_id: str) -> None:
        session = self._sessions.pop(session_id)
        if session.forget_timer is not None:
            session.forget_timer.cancel()
        session.abandon()

    def _going_away(self) -> UnavailableError:
        return UnavailableError(
            "the server is going away; come again later", reason="DRAINING", retry_after=RETRY_AFTER_SECONDS
        )
