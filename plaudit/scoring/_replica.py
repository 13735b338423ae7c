"""One replica of a reward server: its session, kept open over reconnects, and the batches that it holds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from typing import Final, Protocol

import grpc.aio

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import LoadCredentials, duration_seconds, is_duration
from plaudit.scoring._backoff import RECONNECT_FIRST_SECONDS, RECONNECT_MOST_SECONDS, backoff, jitter
from plaudit.scoring._compatibility import ServerDescription, UselessError
from plaudit.scoring._connection import LostError, RefusedError, connect
from plaudit.scoring._convert import failed
from plaudit.scoring._counters import CounterBook
from plaudit.scoring._join import OutcomeSink, ResultJoiner
from plaudit.scoring._limits import ScoringLimits
from plaudit.scoring._stream import Stream
from plaudit.scoring._work import SentBatch
from plaudit.service import get_logger
from plaudit.types.scoring import Failed, FailureCode

log = get_logger(__name__)

_STABLE_AFTER_SECONDS: Final = 5.0
MOST_FAILED_OPENS: Final = 5
"""Errors of its own, in a row, after which a server is taken for broken: one may come of a cut connection."""
"""A stream that lasted so long, or brought results, was no failure: the next waits start small again."""


_LARGEST_WINDOW: Final = 65_536
"""Whatever a server allows: what is under way is held here, too."""

_LONGEST_GRACE_SECONDS: Final = 86_400.0
"""A server that drains for longer is asked anew."""

_ABANDONED_KEPT: Final = 4096
"""Batches that were given up and are still known by their id."""


class ReplicaOwner(Protocol):
    """The server that a replica belongs to."""

    def describe(self, info: pb.GetServerInfoResponse) -> ServerDescription:
        """Reads a description; raises UselessError where the job cannot use the replica."""

    def refusal(self, refused: RefusedError) -> UselessError:
        """What a useless status means for the user."""

    def open_frame(self, replica: Replica) -> pb.ScoreRequest:
        """The first frame of a stream."""

    def on_open(self, replica: Replica) -> None:
        """A session is open; what is not retained waits to be sent again."""

    def on_room(self) -> None:
        """A replica may have room for more work."""

    def on_lost(self, replica: Replica) -> None:
        """A connection ended, or was not made."""

    def failing(self, lost: LostError) -> UselessError:
        """What it means for the user that sessions fail to open over and over."""

    def on_useless(self, replica: Replica, error: UselessError) -> None:
        """The replica will never do, and is not dialled again."""

    def on_rejected(self, batch: SentBatch, failure: Failed) -> Failed | None:
        """What the answers of a refused batch become; None where the owner sends its completions again."""


class Replica:
    """A session with one address. Made and used in one event loop."""

    def __init__(
        self,
        address: str,
        load_credentials: LoadCredentials,
        owner: ReplicaOwner,
        sink: OutcomeSink,
        limits: ScoringLimits,
        book: CounterBook,
        *,
        is_one_of_several: bool,
    ) -> None:
        self.address = address
        self.description: ServerDescription | None = None
        """The newest."""
        self.is_useless = False
        self.lost_reason = "not reached yet"
        """Why the last connection ended, or was not made."""
        self.failed_opens = 0
        """Sessions in a row that the server, though it was there, could not open for an error of its own."""
        self.failed_connects = 0
        """Since the last open stream."""
        self.fruitless_streams = 0
        """In a row, those that broke with work open before they had brought any result."""
        self.in_flight = 0
        """Completions that the server owes answers for, given-up ones included."""
        self.batches: dict[str, SentBatch] = {}
        """Batches without a done, in the order sent; while the connection is broken, what is pending."""
        self._load_credentials = load_credentials
        self._owner = owner
        self._limits = limits
        self._book = book
        self._loop = asyncio.get_running_loop()
        self._joiner = ResultJoiner(
            sink, book, self.batches, self._is_abandoned, address if is_one_of_several else ""
        )
        self._abandoned: dict[str, tuple[int, float]] = {}
        """Batches that were given up: completions of them in flight, and since when."""
        self._to_resend: deque[SentBatch] = deque()
        self.channel: grpc.aio.Channel | None = None
        """On which the replica has described itself; None while it is not connected."""
        self._stream: Stream | None = None
        self.window = 1
        """Completions that the server allows in flight."""
        self.room_since = -math.inf
        """When the window, full before, had room again."""
        self._alone_id = ""
        """The last batch beside which nothing else may be under way."""
        self.is_draining = False
        """Whether it goes away, as it said on the stream that is open or was last."""
        self._is_useful = False
        self._relaxed_keepalive = False
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def is_open(self) -> bool:
        """Whether a session is open."""
        return self._stream is not None

    @property
    def takes_work(self) -> bool:
        """Whether new work may go here, window permitting."""
        return self._stream is not None and not self.is_draining and not self._to_resend

    @property
    def room(self) -> int:
        """Completions that the window has room for."""
        return max(0, self.window - self.in_flight)

    def has_room_for(self, completions: int) -> bool:
        """Whether a batch of so many completions keeps to the window; the only one may exceed it."""
        if self.in_flight == 0:
            return True
        return completions <= self.room and self._alone_id not in self.batches

    def send(self, batch: SentBatch) -> None:
        """Sends a batch and watches its deadline."""
        assert self._stream is not None
        now = self._loop.time()
        batch.restart(now)
        batch.written = False
        self.batches[batch.batch_id] = batch
        if batch.must_be_alone:
            self._alone_id = batch.batch_id
        self.in_flight += batch.open_completions
        batch.give_up_at = now + batch.timeout_seconds + self._limits.client_grace_seconds
        self._watch_deadline(batch)
        self._stream.put(batch)

    def send_again(self) -> None:
        """Sends what was pending when the session broke and is not retained, window permitting."""
        while self._to_resend:
            batch = self._to_resend[0]
            if batch.batch_id in self.batches and not self.has_room_for(batch.completions):
                return
            self._to_resend.popleft()
            if batch.batch_id in self.batches:
                self._book.server.resends += 1
                self.send(batch)

    @property
    def unsent(self) -> list[SentBatch]:
        """Pending batches that the server does not hold."""
        return list(self._to_resend) if self.is_open else list(self.batches.values())

    def withdraw(self, batch: SentBatch) -> None:
        """Takes back a batch that the server does not hold."""
        self.batches.pop(batch.batch_id)
        batch.stop_timer()

    def give_up(self, batch: SentBatch, missing: Failed) -> None:
        """Cancels a batch: what is open of it gets `missing`, and what still comes of it is late."""
        self.withdraw(batch)
        if self._stream is not None and batch not in self._to_resend:
            self._abandoned[batch.batch_id] = (batch.open_completions, self._loop.time())
            if len(self._abandoned) > _ABANDONED_KEPT:
                self._forget_abandoned(next(iter(self._abandoned)))
            if batch.waiting:
                self._stream.put(pb.ScoreRequest(cancel=pb.BatchCancel(batch_id=batch.batch_id)))
        self._joiner.end(batch, missing)

    def break_off_if_silent(self) -> None:
        """Ends a stream that owes nothing but given-up work, and does not even acknowledge that."""
        if self._stream is None or self.batches or not self._abandoned:
            return
        latest = max(since for _, since in self._abandoned.values())
        if self._loop.time() - latest > self._limits.client_grace_seconds:
            self._stream.break_off("it answers nothing, not even that batches were cancelled")

    async def close(self, timeout: float) -> None:
        """Half-closes the stream, waits for its end, and lets go of the connection."""
        self._closing.set()
        if self._stream is not None:
            self._stream.half_close()
            await asyncio.wait({self._task}, timeout=timeout)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        tries = 0
        while not self._closing.is_set():
            started = self._loop.time()
            self._is_useful = False
            lost = await self._end_of_conversation()
            if isinstance(lost, UselessError):
                self._useless(lost)
                return
            self.failed_opens = self.failed_opens + 1 if lost.failed_to_open else 0
            if self.failed_opens >= MOST_FAILED_OPENS:
                self._useless(self._owner.failing(lost))
                return
            was_stable = self._is_useful or self._loop.time() - started > _STABLE_AFTER_SECONDS
            tries = 1 if was_stable and self.is_open else tries + 1
            self._lose(lost)
            delay = jitter() * backoff(tries, RECONNECT_FIRST_SECONDS, RECONNECT_MOST_SECONDS)
            delay = max(delay, lost.retry_after)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), delay)

    async def _end_of_conversation(self) -> LostError | UselessError:
        """Holds one conversation; returns what ended it."""
        try:
            try:
                await self._converse()
            except RefusedError as refused:
                return self._owner.refusal(refused)
        except (LostError, UselessError) as error:
            return error
        except Exception:
            # Scoring must outlive any mistake of ours: it is logged, and the session is opened again.
            log.exception("unexpected error in a reward session", address=self.address)
            return LostError("an unexpected error in the client; its log says more")
        return LostError("it ended the stream")

    async def _converse(self) -> None:
        """One connection, from the lookup to the end of the stream."""
        timeout = self._limits.connect_timeout_seconds
        connection = await connect(
            self.address, self._load_credentials, timeout, relaxed_keepalive=self._relaxed_keepalive
        )
        try:
            self._book.server.mistimed += not is_duration(connection.info.capabilities.result_retention)
            self.description = self._owner.describe(connection.info)
            self.channel = connection.channel
            frame = self._owner.open_frame(self)
            call, opened = await connection.open(frame, timeout)
            stream = Stream(call, timeout)
            self._opened(stream, opened)
            async with contextlib.aclosing(stream.frames()) as answers:
                async for answer in answers:
                    self._on_frame(stream, answer)
        finally:
            self.channel = None
            await connection.channel.close()

    def _opened(self, stream: Stream, opened: pb.SessionOpened) -> None:
        self._stream = stream
        self._set_window(opened.max_in_flight_completions)
        self.is_draining = False
        self.failed_connects = 0
        self.failed_opens = 0
        retained = set(opened.retained_batch_ids)
        now = self._loop.time()
        for batch in self.batches.values():
            if batch.batch_id not in retained:
                batch.written = False
                self._to_resend.append(batch)
                continue
            # The server lived on, so it was not this batch that broke the connection.
            batch.breaks = max(0, batch.breaks - 1)
            batch.restart(now)
            self.in_flight += batch.open_completions
            grace = self._limits.client_grace_seconds
            # Without an end, a stream that breaks at every replay would be waited for without one.
            batch.give_up_at = min(max(batch.give_up_at, now + grace), batch.latest_end + grace)
            self._watch_deadline(batch)
        log.info("reward session open", address=self.address, window=self.window, retained=len(retained))
        self._owner.on_open(self)

    def _on_frame(self, stream: Stream, answer: pb.ScoreResponse) -> None:
        kind = answer.WhichOneof("frame")
        was_full = self.in_flight >= self.window
        if kind == "results":
            assert self.description is not None
            self._is_useful = True
            self.fruitless_streams = 0
            self.in_flight -= self._joiner.join(answer.results, self.description.rules)
            for done in answer.results.done:
                self._on_done(done)
        elif kind == "done":
            self._on_done(answer.done)
        elif kind == "rejected":
            self._on_rejected(answer.rejected)
        elif kind == "window":
            self._set_window(answer.window.max_in_flight_completions)
        elif kind == "draining" and not self.is_draining:
            self.is_draining = True
            log.info("reward server drains", address=self.address)
            if answer.draining.HasField("grace"):
                self._book.server.mistimed += not is_duration(answer.draining.grace)
                grace = min(duration_seconds(answer.draining.grace), _LONGEST_GRACE_SECONDS)
                stream.break_off_in(
                    grace + self._limits.client_grace_seconds, "it drained, and its grace is over"
                )
        elif kind == "opened":
            self._book.server.reopened += 1
        if was_full and self.in_flight < self.window:
            self.room_since = self._loop.time()
        if self.is_draining and not self.batches and not self._abandoned:
            stream.half_close()
        self._owner.on_room()

    def _set_window(self, window: int) -> None:
        self.window = min(max(1, window), _LARGEST_WINDOW)

    def _on_done(self, done: pb.BatchDone) -> None:
        batch = self.batches.get(done.batch_id)
        if batch is None:
            self._forget_abandoned(done.batch_id)
            return
        self.withdraw(batch)
        self.in_flight -= batch.open_completions
        if done.scored_count + done.not_applicable_count + done.failed_count != batch.answer_count:
            self._book.server.miscounted += 1
        for answer in batch.waiting.keys() - batch.invalid.keys():
            self._book.at(answer[1]).missing += 1
        # Worth another try: a frame may have been lost.
        self._joiner.end(
            batch,
            Failed(
                FailureCode.INTERNAL, "the reward server ended the batch without a result", retry_delay=0.0
            ),
        )

    def _on_rejected(self, rejected: pb.BatchRejected) -> None:
        batch = self.batches.get(rejected.batch_id)
        if batch is None:
            self._forget_abandoned(rejected.batch_id)
            return
        self.withdraw(batch)
        self.in_flight -= batch.open_completions
        self._book.server.rejected += 1
        self._book.server.mistimed += not is_duration(rejected.failure.retry_delay)
        outcome = self._owner.on_rejected(batch, failed(rejected.failure))
        if outcome is not None:
            self._joiner.end(batch, outcome)

    def _forget_abandoned(self, batch_id: str) -> None:
        if batch_id in self._abandoned:
            self.in_flight -= self._abandoned.pop(batch_id)[0]
        else:
            self._book.server.unknown += 1

    def _lose(self, lost: LostError) -> None:
        """The connection is gone: what it owed is pending."""
        self.lost_reason = str(lost)
        self._book.server.unreadable += lost.unreadable
        if self._stream is None:
            self.failed_connects += 1
            self.fruitless_streams = 0
        else:
            if self.batches:
                self.fruitless_streams = 0 if self._is_useful else self.fruitless_streams + 1
            is_suspicious = not self.is_draining and not lost.pinged_too_often
            broke_work = False
            for batch in list(self.batches.values()):
                batch.stop_timer()
                # An error in between may have left answers out of `waiting` that nothing has come of.
                if batch.is_settled:  # only its done was missing
                    self.withdraw(batch)
                elif is_suspicious and batch.written:
                    broke_work |= not batch.must_be_alone  # else it is the batch that is under suspicion
                    batch.breaks += 1
                    batch.break_reason = self.lost_reason
            if broke_work:
                self._joiner.note_break()
            self._book.server.breaks += bool(self.batches)
            log.log(
                logging.WARNING if self.batches else logging.INFO,
                "reward session lost",
                address=self.address,
                reason=self.lost_reason,
                pending=len(self.batches),
            )
        self._relaxed_keepalive |= lost.pinged_too_often
        self._stream = None
        self._to_resend.clear()
        self._abandoned.clear()
        self.in_flight = 0
        self._owner.on_lost(self)

    def _useless(self, error: UselessError) -> None:
        self._lose(LostError(error.error.message))
        self.is_useless = True
        log.error("reward server is of no use", address=self.address, reason=self.lost_reason)
        self._owner.on_useless(self, error)

    def _watch_deadline(self, batch: SentBatch) -> None:
        batch.stop_timer()
        batch.timer = self._loop.call_at(batch.give_up_at, self._time_out, batch)

    def _time_out(self, batch: SentBatch) -> None:
        self._book.server.unfinished += not batch.waiting
        self.give_up(
            batch,
            Failed(
                FailureCode.TIMEOUT, f"no answer within {batch.timeout_seconds:g} s, nor in the grace after"
            ),
        )
        self._owner.on_room()

    def _is_abandoned(self, batch_id: str) -> bool:
        return batch_id in self._abandoned
