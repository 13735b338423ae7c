"""One session of the Score stream: the batches of a run, over all the streams that it has had."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from plaudit.errors import AbortedError, FieldViolation
from plaudit.types.scoring import Failed, FailureCode
from reward_service._stream import Opened, Stream
from reward_service._work import Batch, InFlight, Scorer, Work, problems_of
from reward_service.limits import ServerLimits

log = structlog.get_logger(__name__)

RETRY_AFTER_SECONDS: Final = 1.0
"""When a client that was sent away may come again."""

_SHOWN_PROBLEMS: Final = 20
_RETAINED_WINDOWS: Final = 4
"""Results of finished batches that a session keeps, in windows: more than a client can have missed."""


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
    reads_plain_scores: bool = False


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
        self.stream = Stream(
            Opened(window, retained),
            bundles_done=request.reads_bundled_done,
            allows_plain=request.reads_plain_scores,
        )
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


def _told(problems: Sequence[FieldViolation]) -> str:
    told = "; ".join(f"{v.field} {v.message}" for v in problems[:_SHOWN_PROBLEMS])
    more = len(problems) - _SHOWN_PROBLEMS
    return told if more <= 0 else f"{told}; and {more} more"
