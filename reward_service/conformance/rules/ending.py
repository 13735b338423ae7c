"""Rules about how streams end, what is ignored, and what must stand at the end of it all."""

from __future__ import annotations

from typing import Final

import grpc

from reward_service.conformance._rule import Broken, optional, required
from reward_service.conformance._run import Run
from reward_service.conformance._talk import Ending, Talk

_UNKNOWN_FRAMES: Final = (
    (b"\xa2\x06\x02\x08\x07", "a frame whose case, number 100, is not known"),
    (b"\x98\x06\x05", "a frame whose only field, number 99, is not known"),
    (b"", "a frame without a case"),
)


@required(
    "R17",
    "half-close",
    "The server finishes what it accepted and ends the stream with OK.",
    "when the client's frames are over, send what is still due, then return: the status is OK",
)
async def half_close(run: Run) -> str | None:
    """The end of the client's frames ends the stream, after the work."""
    async with run.talk() as talk:
        await talk.open()
        batches = [run.work.many(4), run.work.many(3)]
        await talk.send(*batches)
        await talk.half_close()
        await _ends_well(talk, "OK after the half-close")
        for batch in batches:
            entry = talk.ledger.entries[batch.batch_id]
            if not entry.settled:
                missing = entry.size - len(entry.outcomes)
                raise talk.broken(
                    f"the stream ended with OK, and {missing} of {entry.size} results of a batch that was "
                    "sent before the half-close had not come, nor its done"
                )
        await run.sound(talk)
    async with run.talk() as talk:
        await talk.open()
        await talk.half_close()
        await _ends_well(talk, "OK after the half-close of a stream without work")
    return None


async def _ends_well(talk: Talk, what: str) -> Ending:
    ending = await talk.ended(what)
    if ending.code is not grpc.StatusCode.OK:
        raise talk.broken(f"the stream ended with {ending}; awaited was {what}")
    return ending


@required(
    "R18",
    "unknown-frames",
    "Both sides ignore a frame whose oneof case they do not know.",
    "let frames of a case that your code does not name fall through: no answer, no error, no end",
)
async def unknown_frames(run: Run) -> str | None:
    """Frames of the future are ignored."""
    async with run.talk() as talk:
        await talk.open()
        before, after = run.work.many(2), run.work.many(3)
        for raw, what in _UNKNOWN_FRAMES:
            await talk.write_bytes(raw, what)
        await talk.send(before)
        for raw, what in _UNKNOWN_FRAMES:
            await talk.write_bytes(raw, what)
        await talk.send(after)
        await talk.settled(before, after)
        await run.sound(talk)
    return None


@required(
    "R35",
    "still-serving",
    "Cheap enough to call on every (re)connect.",
    "look into the server's log: after what was sent, it no longer serves as it did; streams that broke must "
    "give back what they hold",
)
async def still_serving(run: Run) -> str | None:
    """After all the work and the broken streams, the server still serves."""
    await _serves(run)
    return None


@optional(
    "O27",
    "survives",
    "Failures of a batch or of one completion are data and never end the stream.",
    "look into the server's log: frames that no client should send have brought it down; only their own "
    "stream may end",
)
async def survives(run: Run) -> str | None:
    """After all the wrong frames, the server still serves."""
    await _serves(run)
    return None


async def _serves(run: Run) -> None:
    """It answers on an old connection and on a new one."""
    for wire in (run.wire, run.connect()):
        try:
            await wire.server_info(run.timeout)
        except grpc.aio.AioRpcError as error:
            raise Broken(f"GetServerInfo ended with {error.code().name} at the end of the run") from None
        async with run.talk(wire=wire) as talk:
            await talk.open()
            batch = run.work.many(4)
            await talk.send(batch)
            await talk.settled(batch)
            await run.sound(talk)


RULES: Final = (half_close, unknown_frames, still_serving)
OPTIONAL_RULES: Final = (survives,)
