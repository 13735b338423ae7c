"""One Score stream, frame by frame. Every wait has a deadline, and what is kept of the talk is bounded."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._faults import Fault
from reward_service.conformance._ledger import Ledger, Outcome, Range, shown
from reward_service.conformance._rule import Broken
from reward_service.conformance._transcript import Transcript, request_line, response_line
from reward_service.conformance._wire import Wire

_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How a stream ended."""

    code: grpc.StatusCode
    details: str
    bad_fields: Sequence[str]

    def __str__(self) -> str:
        return f"{self.code.name} {shown(self.details)}" if self.details else self.code.name


class Talk:
    """A conversation with the server; to be used as a context manager, which ends the stream."""

    def __init__(
        self,
        wire: Wire,
        selections: Sequence[pb.RewardSelection],
        ranges: dict[str, Range],
        timeout: float,
        *,
        reads_bundles: bool = False,
    ) -> None:
        self.ledger = Ledger(ranges, reads_bundles=reads_bundles)
        self.ending: Ending | None = None
        self.session_id = str(uuid.uuid4())
        self._wire = wire
        self._selections = tuple(selections)
        self._timeout = timeout
        self._transcript = Transcript()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._call = self._wire.score()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.break_off()
        await asyncio.wait({self._reader}, timeout=_CLOSE_SECONDS)
        self._reader.cancel()

    @property
    def exchange(self) -> tuple[str, ...]:
        """The last frames that were sent and seen."""
        return self._transcript.lines

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the session's rewards."""
        return tuple(selection.key for selection in self._selections)

    def opening(self, *, pending: Sequence[str] = (), version: int = 1) -> pb.SessionOpen:
        """The frame that opens this session."""
        return pb.SessionOpen(
            session_id=self.session_id,
            protocol_version=version,
            rewards=self._selections,
            pending_batch_ids=pending,
            job_id="conformance",
            model="conformance",
            reads_bundled_done=self.ledger.reads_bundles,
            reads_plain_scores=self.ledger.reads_bundles,
        )

    async def open(self, *, pending: Sequence[str] = ()) -> pb.SessionOpened:
        """Opens the session and waits for the answer."""
        await self.write(pb.ScoreRequest(open=self.opening(pending=pending)))
        ledger = self.ledger
        await self.wait(
            lambda: ledger.opened is not None or Fault.BEFORE_OPENED in ledger.faults, "the answer to open"
        )
        if Fault.BEFORE_OPENED in ledger.faults:
            raise self.broken(ledger.told(Fault.BEFORE_OPENED))
        assert ledger.opened is not None
        return ledger.opened

    async def send(self, *batches: pb.Batch) -> None:
        """Sends batches, each as soon as the window has room for it."""
        for batch in batches:
            count = sum(len(group.completions) for group in batch.groups)
            await self.wait(
                partial(self.ledger.has_room, count), f"room for {count} completions in the window"
            )
            await self.send_now(batch)

    async def send_now(self, batch: pb.Batch) -> None:
        """Sends a batch without a look at the window."""
        self.ledger.sent(batch, self.keys)
        await self.write(pb.ScoreRequest(batch=batch))

    async def cancel(self, batch_id: str) -> None:
        """Gives up on a batch."""
        await self.write(pb.ScoreRequest(cancel=pb.BatchCancel(batch_id=batch_id)))

    async def write(self, frame: pb.ScoreRequest) -> None:
        """Sends a frame."""
        raw = frame.SerializeToString()
        await self.write_bytes(raw, request_line(frame, len(raw)))

    async def write_bytes(self, raw: bytes, what: str) -> None:
        """Sends any bytes as a frame. Raises Broken where the server reads nothing, or the stream is over."""
        self._transcript.add("C", what)
        try:
            async with asyncio.timeout(self._timeout):
                await self._call.write(raw)
        except TimeoutError:
            raise self.broken(f"the server read nothing for {self._timeout:g} s: {what}") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            if _cancelled_from_outside():
                raise
            await self.ended(f"the end of the stream, which broke while it was written to: {what}")
            raise self.broken(f"the stream ended with {self.ending} before this was sent: {what}") from None

    async def settled(self, *batches: pb.Batch, seconds: float | None = None) -> None:
        """Waits until each of the batches is done or rejected."""
        entries = [self.ledger.entries[batch.batch_id] for batch in batches]

        def missing() -> str:
            left = sum(entry.size - len(entry.outcomes) for entry in entries if not entry.settled)
            lacking = sum(not entry.settled for entry in entries)
            return (
                f"{left} results and {lacking} done frames"
                if left
                else f"{lacking} done frames (all results came)"
            )

        await self.wait(lambda: all(entry.settled for entry in entries), missing, seconds)

    async def wait(
        self, condition: Callable[[], bool], what: str | Callable[[], str], seconds: float | None = None
    ) -> None:
        """Waits until `condition` holds.

        Raises Broken where the server is silent for the timeout, or where `seconds` are over, and where the
        stream ends.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not condition():
            waited_for = what if isinstance(what, str) else what()
            if Fault.FLOOD in self.ledger.faults:
                raise self.broken(f"while {waited_for} was awaited, {self.ledger.told(Fault.FLOOD)}")
            if self.ending is not None:
                raise self.broken(f"the stream ended with {self.ending}; awaited was {waited_for}")
            self._changed.clear()
            left = self._timeout if deadline is None else deadline - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._changed.wait()
            except TimeoutError:
                raise Late(
                    f"{waited_for} did not come within {seconds or self._timeout:g} s", self.exchange
                ) from None

    async def half_close(self) -> None:
        """Says that no more batches come."""
        self._transcript.add("C", "(half-closes)")
        try:
            async with asyncio.timeout(self._timeout):
                await self._call.done_writing()
        except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.ended("the end of the stream, which broke before it was half-closed")

    async def ended(self, what: str, seconds: float | None = None) -> Ending:
        """Waits for the end of the stream."""
        await self.wait(lambda: self.ending is not None, what, seconds)
        assert self.ending is not None
        return self.ending

    def break_off(self) -> None:
        """Breaks the stream, as a lost connection does."""
        if self.ending is None:
            self._transcript.add("C", "(breaks the stream)")
        self._call.cancel()

    def outcomes(self, batch: pb.Batch) -> dict[tuple[str, str], Outcome]:
        """What came of a batch, by completion id and key."""
        return self.ledger.entries[batch.batch_id].outcomes

    def broken(self, found: str, way_out: str = "") -> Broken:
        """A finding, with the frames that led to it."""
        return Broken(found, self.exchange, way_out)

    async def _read(self) -> None:
        call = self._call
        try:
            while True:
                raw: Any = await call.read()
                if raw is grpc.aio.EOF:
                    break
                frame = self.ledger.take(raw)
                self._transcript.add("S", response_line(frame, len(raw)))
                self._changed.set()
                if Fault.FLOOD in self.ledger.faults:
                    call.cancel()
                    break
        except grpc.aio.AioRpcError:
            pass  # the status below says it
        except asyncio.CancelledError:
            if _cancelled_from_outside():
                raise
        code, details = await call.code(), await call.details()
        trailers: Any = await call.trailing_metadata()
        self.ending = Ending(code, details or "", bad_fields(trailers))
        self._transcript.add("S", f"(ends with {self.ending})")
        self._changed.set()


class Late(Broken):
    """What was awaited did not come in time."""


def _cancelled_from_outside() -> bool:
    """Whether our own task is being cancelled; a call that was cancelled raises the same error."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def bad_fields(trailers: Any) -> list[str]:
    """Fields that a google.rpc.BadRequest in trailers names; none where there is none that can be read."""
    for key, value in trailers or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                details = status_pb2.Status.FromString(value).details
            except Exception:
                return []  # somebody else's bytes
            bad = error_details_pb2.BadRequest()
            for detail in details:
                if detail.Unpack(bad):
                    return [violation.field for violation in bad.field_violations]
    return []
