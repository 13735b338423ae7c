"""Servers with a fault in their results, or in how a stream ends. See broken_servers.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio
from correct_server import Context, CorrectServer, Frame

from plaudit.reward.v1 import reward_service_pb2 as pb

# Of results.


class RejectsEverything(CorrectServer):
    breaks = "R08"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE, message="busy")
        yield pb.ScoreResponse(rejected=pb.BatchRejected(batch_id=batch.batch_id, failure=failure))


class LosesAResult(CorrectServer):
    """As one does that leaves out what raised."""

    breaks = "R09"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        results = self.results(batch, keys)
        yield pb.ScoreResponse(results=pb.Results(results=results[1:] or results))
        yield pb.ScoreResponse(done=self.done(batch, results))


class DoublesAResult(CorrectServer):
    breaks = "R09"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        results = self.results(batch, keys)
        yield pb.ScoreResponse(results=pb.Results(results=[*results, results[0]]))
        yield pb.ScoreResponse(done=self.done(batch, results))


class TrimsIds(CorrectServer):
    breaks = "R10"

    def result(self, *of: Any) -> pb.Result:
        result = super().result(*of)
        result.completion_id = result.completion_id.strip()
        return result


class AnswersWithTheName(CorrectServer):
    """The reward's name where its key belongs."""

    breaks = "R10"

    def session_keys(self, opening: pb.SessionOpen) -> Sequence[str]:
        return [selection.name for selection in opening.rewards]


class LeavesOutZeros(CorrectServer):
    """As one does that sets the score only where it is true."""

    breaks = "R11"

    def result(self, *of: Any) -> pb.Result:
        result = super().result(*of)
        if result.HasField("score") and not result.score.value:
            result.ClearField("score")
        return result


class NotANumber(CorrectServer):
    breaks = "R12"

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        return float("nan")


class OutsideItsRange(CorrectServer):
    breaks = "R12"

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        return 7.0 * super().value(group, completion)


class NeverDone(CorrectServer):
    breaks = "R13"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        yield pb.ScoreResponse(results=pb.Results(results=self.results(batch, keys)))


class CountsCompletionsOnly(CorrectServer):
    """And not those that failed."""

    breaks = "R14"

    def done(self, batch: pb.Batch, results: Sequence[pb.Result]) -> pb.BatchDone:
        done = super().done(batch, results)
        done.scored_count -= 1
        return done


class DoneTooEarly(CorrectServer):
    breaks = "R15"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        results = self.results(batch, keys)
        yield pb.ScoreResponse(results=pb.Results(results=results[:-1] or results))
        yield pb.ScoreResponse(done=self.done(batch, results))
        if len(results) > 1:
            yield pb.ScoreResponse(results=pb.Results(results=results[-1:]))


class BundlesDoneUnasked(CorrectServer):
    breaks = "R16"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        results = self.results(batch, keys)
        yield pb.ScoreResponse(results=pb.Results(results=results, done=[self.done(batch, results)]))


class InvalidUtf8(CorrectServer):
    """In an explanation, as C++ and Ruby can send."""

    breaks = "R16"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        async for frame in super().answer(batch, keys):
            yield frame
        spoilt = pb.ScoreResponse(rejected=pb.BatchRejected(failure=pb.Failure(message="\x01\x02")))
        yield spoilt.SerializeToString().replace(b"\x01\x02", b"\xff\xfe")


class Floods(CorrectServer):
    """Window updates without end."""

    breaks = "R16"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        async for frame in super().answer(batch, keys):
            yield frame
        while True:
            yield pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=256))


class Trickles(CorrectServer):
    """Always a sign of life, and never an answer."""

    breaks = "R09"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        while True:
            yield pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=256))
            await asyncio.sleep(0.1)


class SilentOnBatches(CorrectServer):
    breaks = "R09"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        await asyncio.sleep(3600)
        yield b""


# Of the end, and of what is to be ignored.


class DropsWorkAtHalfClose(CorrectServer):
    """Works beside the reader, and leaves with it."""

    breaks = "R17"

    async def Score(self, frames: AsyncIterator[pb.ScoreRequest], context: Context) -> AsyncIterator[Frame]:
        out: asyncio.Queue[Frame | None] = asyncio.Queue()

        async def read() -> None:
            keys: Sequence[str] = ()
            async for frame in frames:
                if frame.HasField("open"):
                    keys = self.session_keys(frame.open)
                    for answer in self.opened(frame.open):
                        out.put_nowait(answer)
                elif frame.HasField("batch"):
                    asyncio.get_running_loop().call_later(0.05, work, frame.batch, keys)
            out.put_nowait(None)

        def work(batch: pb.Batch, keys: Sequence[str]) -> None:
            results = self.results(batch, self.wanted_keys(batch, keys))
            out.put_nowait(pb.ScoreResponse(results=pb.Results(results=results)))
            out.put_nowait(pb.ScoreResponse(done=self.done(batch, results)))

        reader = asyncio.create_task(read())
        try:
            while (answer := await out.get()) is not None:
                yield answer
        finally:
            reader.cancel()


class ScoresForAges(CorrectServer):
    """The time that scoring took, in a number that no duration holds."""

    breaks = "R16"

    def result(self, *of: Any) -> pb.Result:
        result = super().result(*of)
        result.scoring_duration.seconds = 2**62
        return result


class NeverEnds(CorrectServer):
    breaks = "R17"

    async def half_closed(self, context: Context) -> None:
        await asyncio.sleep(3600)


class EndsWithAnError(CorrectServer):
    breaks = "R17"

    async def half_closed(self, context: Context) -> None:
        await context.abort(grpc.StatusCode.CANCELLED, "the client went away")


class DiesOfUnknownFrames(CorrectServer):
    breaks = "R18"

    async def unknown(self, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "what is this?")
