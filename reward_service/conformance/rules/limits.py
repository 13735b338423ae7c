"""Rules about how much: frames, batches and windows at their limits and above, and many completions."""

from __future__ import annotations

import time
from typing import Final

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._faults import Fault
from reward_service.conformance._rule import Broken, Skipped, optional, required
from reward_service.conformance._run import Run
from reward_service.conformance._work import TEXTS

_WIDEST_WINDOW: Final = 20_000
_MANY: Final = 10_000
_MANY_QUICKLY: Final = 1_000
_SHARE_BYTES: Final = 64 * 1024


@required(
    "R25",
    "frame-at-limit",
    "Most bytes in one encoded frame. 0: 4 MiB, gRPC's own default.",
    "announce in limits.max_frame_bytes what your gRPC server takes (its largest message to receive), or "
    "raise that; both must be the same",
)
async def frame_at_limit(run: Run) -> str | None:
    """A frame of as many bytes as are announced is read."""
    most = run.frame_bytes
    largest = min(most, (4 if run.settings.quick else 16) * 2**20)
    count = min(run.work.most, max(1, largest // _SHARE_BYTES), 64)
    batch = _filled(run, count, largest)
    async with run.talk() as talk:
        await talk.open()
        await talk.send(batch)
        await talk.settled(batch)
        await run.sound(talk)
    return f"{largest} bytes"


def _filled(run: Run, count: int, size: int) -> pb.Batch:
    """A batch of `count` completions whose frame has exactly `size` bytes, or a few less."""
    batch = run.work.batch(run.work.group(["72"] * count))
    completions = batch.groups[0].completions
    if pb.ScoreRequest(batch=batch).ByteSize() > size:
        raise Skipped(f"no completion fits a frame of {size} bytes: R06")
    for _ in range(8):
        left = size - pb.ScoreRequest(batch=batch).ByteSize()
        if left == 0:
            break
        for index, completion in enumerate(completions):
            share = left // count + (left % count if index == 0 else 0)
            length = max(1, len(completion.text) + share)
            completion.text = ("The answer is 72, for 6 times 12 is that. " * (length // 40 + 1))[:length]
    while pb.ScoreRequest(batch=batch).ByteSize() > size:
        completions[0].text = completions[0].text[:-1]
    return batch


@required(
    "R26",
    "above-window",
    "with nothing in flight, one batch may exceed it.",
    "accept a batch that is larger than the window where nothing else of the session is in flight",
)
async def above_window(run: Run) -> str | None:
    """One batch alone may be larger than the window."""
    async with run.talk() as talk:
        window = (await talk.open()).max_in_flight_completions
        if window >= min(run.work.most, _WIDEST_WINDOW):
            raise Skipped(f"the window of {window} completions is as large as any batch")
        batch = run.work.many(window + 1)
        if pb.ScoreRequest(batch=batch).ByteSize() > run.frame_bytes:
            raise Skipped(f"a batch above the window of {window} completions does not fit a frame")
        await talk.send(batch)
        await talk.settled(batch)
        await run.sound(talk)
    return f"{window + 1} completions at once"


@required(
    "R31",
    "many",
    "It need not wait for answers.",
    "keep nothing that grows with each completion, and bundle results that are ready together",
    patience=40.0,
)
async def many(run: Run) -> str | None:
    """A great many completions, as fast as the window admits: each answered once."""
    total = _MANY_QUICKLY if run.settings.quick else _MANY
    began = time.monotonic()
    async with run.talk() as talk:
        window = (await talk.open()).max_in_flight_completions
        size = max(1, min(64, window, run.work.most))
        batches = []
        sent = 0
        while sent < total:
            batch = run.work.many(min(size, total - sent))
            sent += sum(len(group.completions) for group in batch.groups)
            batches.append(batch)
            await talk.send(batch)
        await talk.settled(*batches)
        await run.sound(talk)
        ledger = talk.ledger
    seconds = time.monotonic() - began
    per_frame = ledger.result_count / max(1, ledger.result_frames)
    advice = (
        "; bundling what is ready together is several times faster" if per_frame < 1.5 and size > 1 else ""
    )
    return f"{total} completions in {seconds:.1f} s, {per_frame:.1f} results in a frame{advice}"


@optional(
    "O18",
    "batch-limit",
    "Most completions in one batch. 0: no limit.",
    "reject a batch of more completions with CODE_LIMIT_EXCEEDED, or take it",
)
async def batch_limit(run: Run) -> str | None:
    """A batch above the limit is refused as a batch, and the stream goes on."""
    most = run.info.limits.max_batch_completions
    if not most:
        raise Skipped("not announced")
    batch = run.work.batch(run.work.group(TEXTS[i % len(TEXTS)] for i in range(most + 1)))
    if pb.ScoreRequest(batch=batch).ByteSize() > run.frame_bytes:
        raise Skipped(f"{most + 1} completions do not fit a frame")
    async with run.talk() as talk:
        await talk.open()
        await talk.send_now(batch)
        await talk.settled(batch)
        rejected = talk.ledger.entries[batch.batch_id].rejected
        if rejected is not None and rejected.code != pb.Failure.CODE_LIMIT_EXCEEDED:
            raise talk.broken("it was rejected, and not with CODE_LIMIT_EXCEEDED")
        last = run.work.many(2)
        await talk.send_now(last)
        await talk.settled(last)
    return "it was taken" if rejected is None else None


@optional(
    "O19",
    "above-frame-limit",
    "A completion, or a group that must stay whole, that does not fit is not sent",
    "let gRPC refuse the message; only that stream may end, and with RESOURCE_EXHAUSTED",
)
async def above_frame_limit(run: Run) -> str | None:
    """A frame above the limit harms nothing but its own stream."""
    size = run.frame_bytes + 1024
    if size > (6 if run.settings.quick else 20) * 2**20:
        raise Skipped(f"frames of {run.frame_bytes} bytes are taken")
    async with run.talk() as beside:
        await beside.open()
        async with run.talk(wire=run.connect()) as talk:
            await talk.open()
            batch = run.work.batch(run.work.group(["7" * size]))
            try:
                await talk.send_now(batch)
                await talk.settled(batch)
            except Broken:
                if talk.ending is None:
                    raise
        batch = run.work.many(2)
        await beside.send(batch)
        await beside.settled(batch)
    return None


@optional(
    "O20",
    "window-exceeded",
    "Most completions that were sent and have not all their results, over all batches of the session",
    "reject what exceeds the window with CODE_LIMIT_EXCEEDED, or take it; never leave it without an answer",
)
async def window_exceeded(run: Run) -> str | None:
    """A client that does not keep to the window is told so, or served."""
    async with run.talk() as talk:
        window = (await talk.open()).max_in_flight_completions
        if window > _WIDEST_WINDOW:
            raise Skipped(f"the window of {window} completions is too wide to be exceeded here")
        size = min(window, run.work.most, 4096)
        batches = []
        sent = 0
        while sent <= 2 * window:
            batches.append(run.work.many(size))
            sent += size
            await talk.send_now(batches[-1])
        await talk.settled(*batches)
        refused = [entry.rejected for entry in talk.ledger.entries.values() if entry.rejected is not None]
        for failure in refused:
            if failure.code != pb.Failure.CODE_LIMIT_EXCEEDED:
                raise talk.broken("a batch was rejected, and not with CODE_LIMIT_EXCEEDED")
        await run.sound(talk, but=(Fault.REJECTED,))
    return f"{len(refused)} of {len(batches)} batches were rejected"


RULES: Final = (frame_at_limit, above_window, many)
OPTIONAL_RULES: Final = (batch_limit, above_frame_limit, window_exceeded)
