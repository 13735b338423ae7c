"""The engine of the Score stream: window, dedupe, replay, cancel, deadlines, drain. It knows no reward.

A session outlives its streams: work goes on while a broken stream is away, is done once, and what came of it
is replayed to the stream that comes back. The conversation stands in protos/plaudit/reward/v1.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from plaudit.errors import (
    AbortedError,
    FieldViolation,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from plaudit.types.scoring import Failed, FailureCode
from reward_service._stream import Opened, Stream
from reward_service._work import MAX_ID_LENGTH, Batch, InFlight, ItemResult, Scorer, Work, problems_of
from reward_service.limits import ServerLimits

log = structlog.get_logger(__name__)

RETRY_AFTER_SECONDS = 1.0
"""When a client that was sent away may come again."""

_SHOWN_PROBLEMS = 20
# Results of finished batches that a session keeps, in windows: more than a client can have missed.
_RETAINED_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Selection:
    """A reward that a session asks for, under a key of its own."""

    key: str
    name: str
    config_json: str = ""


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """Opens or resumes a session."""

    session_id: str
    selections: Sequence[Selection]
    pending_batch_ids: Sequence[str] = ()
    job_id: str = ""
    reads_bundled_done: bool = False


class Select(Protocol):
    """Makes the scorer of selections, for a job."""

    async def __call__(self, selections: Sequence[Selection], job_id: str, *, known: bool) -> Scorer:
        """Raises InvalidArgumentError that names every wrong field of `rewards`.

        Where the selections are `known`, as those of a session that comes back, they are not checked again.
        Raises UnavailableError where they cannot be checked now.
        """


class Session:
    """Batches of one run, over all the streams that it has had."""

    def __init__(self, limits: ServerLimits) -> None:
        self.stream: Stream | None = None
        self.forget_timer: asyncio.TimerHandle | None = None
        self.request: SessionRequest | None = None
        self._limits = limits
        self._scorer: Scorer | None = None
        self._in_flight = InFlight()
        self._batches: dict[str, Work] = {}
        # Of finished batches, the oldest first: id to the time when it is forgotten.
        self._finished: OrderedDict[str, float] = OrderedDict()
        self._finished_results = 0
        self._logged_refusals: set[FailureCode] = set()

    def attach(self, request: SessionRequest, scorer: Scorer, window: int) -> Stream:
        """Makes a stream the session's; an older one ends with ABORTED."""
        if self.stream is not None:
            self.stream.end(
                AbortedError(
                    f"a newer stream opened session {request.session_id}; read that one", reason="SUPERSEDED"
                )
            )
        if self.request is not None and not self.has_selections(request.selections):
            self.abandon()  # what was scored, was scored by other rewards
        self.request = request
        self._scorer = scorer
        pending = dict.fromkeys(request.pending_batch_ids)
        for work in list(self._batches.values()):
            if work.batch_id in pending:
                continue
            if work.open_count:
                del self._batches[work.batch_id]
                work.abandon()
            else:
                work.forget_unhanded()
        retained = [batch_id for batch_id in pending if batch_id in self._batches]
        self.stream = Stream(Opened(window, retained), bundles_done=request.reads_bundled_done)
        for batch_id in retained:
            self.stream.take(self._batches[batch_id])
        return self.stream

    def has_selections(self, selections: Sequence[Selection]) -> bool:
        """Whether the session was opened with these rewards."""
        return self.request is not None and self.request.selections == selections

    def submit(self, batch: Batch, *, draining: bool) -> None:
        """Accepts a batch, answers it again, or rejects it, on the session's stream."""
        stream, scorer = self._attached()
        held = self._batches.get(batch.batch_id)
        known = held.fingerprint if held is not None else stream.fingerprint_of(batch.batch_id)
        if known is not None and known != batch.fingerprint:
            stream.reject(
                batch.batch_id,
                Failed(
                    FailureCode.CONFLICT,
                    f"batch {batch.batch_id} was sent before with other groups or reward_keys; give other "
                    "work another id",
                ),
            )
        elif known is not None:
            if held is not None and not stream.carries(batch.batch_id):
                stream.take(held)
        elif (refusal := self._refusal(batch, stream, scorer, draining)) is not None:
            if refusal.code not in self._logged_refusals:  # once: a client may go on as it began
                self._logged_refusals.add(refusal.code)
                log.warning(
                    "batch rejected",
                    batch_id=batch.batch_id,
                    trace_id=batch.trace_id,
                    code=refusal.code,
                    reason=refusal.message,
                )
            stream.reject(batch.batch_id, refusal)
        else:
            self._forget_finished()
            work = Work(batch, batch.keys_among(scorer.keys), self._in_flight, self._on_progress)
            self._batches[batch.batch_id] = work
            stream.take(work)
            timeout = self._limits.batch_timeout_seconds if batch.timeout is None else batch.timeout
            work.begin(scorer, batch, timeout)

    def cancel(self, batch_id: str) -> None:
        """Ends what is open of a batch; one that is over or not known stays as it is."""
        work = self._batches.get(batch_id)
        if work is not None:
            work.close(FailureCode.CANCELLED, "the client cancelled the batch")

    def abandon(self) -> None:
        """Stops all work and keeps nothing."""
        for work in self._batches.values():
            work.abandon()
        self._batches.clear()
        self._finished.clear()
        self._finished_results = 0

    def _attached(self) -> tuple[Stream, Scorer]:
        assert self.stream is not None
        assert self._scorer is not None
        return self.stream, self._scorer

    def _refusal(self, batch: Batch, stream: Stream, scorer: Scorer, draining: bool) -> Failed | None:
        problems = problems_of(batch, scorer.keys)
        if problems:
            return Failed(FailureCode.INVALID, _told(problems))
        if draining:
            return Failed(
                FailureCode.UNAVAILABLE,
                "the server is going away; send the batch again later",
                RETRY_AFTER_SECONDS,
            )
        count, limit = batch.completion_count, self._limits.max_batch_completions
        if count > limit:
            return Failed(
                FailureCode.LIMIT_EXCEEDED, f"the batch has {count} completions; a batch has at most {limit}"
            )
        in_flight = self._in_flight.count
        if in_flight and in_flight + count > stream.largest_window:
            return Failed(
                FailureCode.LIMIT_EXCEEDED,
                f"{count} completions on top of {in_flight} in flight exceed the window of "
                f"{stream.largest_window}; wait for results",
                RETRY_AFTER_SECONDS,
            )
        return None

    def _on_progress(self, work: Work, indexes: list[int]) -> None:
        if not work.open_count:
            self._finished[work.batch_id] = time.monotonic() + self._limits.result_retention_seconds
            self._finished_results += work.result_count
        if self.stream is not None and self.stream.carries(work.batch_id):
            self.stream.add_results(work, indexes)

    def _forget_finished(self) -> None:
        now = time.monotonic()
        most = _RETAINED_WINDOWS * self._limits.window
        while self._finished:
            batch_id, expiry = next(iter(self._finished.items()))
            work = self._batches[batch_id]
            if work.unhanded_completions or (expiry > now and self._finished_results <= most):
                return
            del self._finished[batch_id], self._batches[batch_id]
            self._finished_results -= work.result_count


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

    async def score_once(
        self, selections: Sequence[Selection], batch: Batch, timeout: float | None
    ) -> list[ItemResult]:
        """Scores one batch without a session, within `timeout` seconds; what is open then ends as TIMEOUT.

        A batch without groups asks for nothing but the check of the selections.
        """
        started = time.monotonic()
        problems: list[FieldViolation] = []
        keys: Sequence[str] = [selection.key for selection in selections]
        scorer: Scorer | None = None
        try:
            scorer = await self._select(selections, "", known=False)
        except InvalidArgumentError as error:
            problems.extend(error.violations)
        if batch.groups:
            problems.extend(FieldViolation(f"batch.{v.field}", v.message) for v in problems_of(batch, keys))
        if problems or scorer is None:
            raise InvalidArgumentError(problems)
        if not batch.groups:
            return []
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


def _told(problems: Sequence[FieldViolation]) -> str:
    told = "; ".join(f"{v.field} {v.message}" for v in problems[:_SHOWN_PROBLEMS])
    more = len(problems) - _SHOWN_PROBLEMS
    return told if more <= 0 else f"{told}; and {more} more"
