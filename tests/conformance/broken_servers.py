"""Servers that differ from the correct one by one fault each.

Each is a subclass that overrides one thing; `breaks` is the id of the rule that must name it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc
import grpc.aio
from correct_server import Context, CorrectServer, Frame
from grpc_health.v1 import health_pb2

from plaudit.reward.v1 import reward_service_pb2 as pb

# Of what a server says of itself.


class NoServerInfo(CorrectServer):
    breaks = "R01"

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not there")
        raise AssertionError


class UpsideDownVersions(CorrectServer):
    breaks = "R02"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.min_protocol_version, info.max_protocol_version = 2, 1
        return info


class TwinNames(CorrectServer):
    breaks = "R03"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.rewards.append(self.reward())
        return info


class NoScope(CorrectServer):
    breaks = "R04"

    def reward(self) -> pb.Reward:
        reward = super().reward()
        reward.scope = pb.Reward.SCOPE_UNSPECIFIED
        return reward


class SchemaThatIsNone(CorrectServer):
    breaks = "R05"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        other = self.reward()
        other.name, other.config_schema_json = "other", '{"type": "objekt"}'
        info.rewards.append(other)
        return info


class TinyFrames(CorrectServer):
    breaks = "R06"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.limits.max_frame_bytes = 64
        return info


# Of opening.


class SilentOnOpen(CorrectServer):
    breaks = "R07"

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        return iter(())


class NoWindow(CorrectServer):
    breaks = "R07"
    window = 0


class ResultsBeforeOpened(CorrectServer):
    breaks = "R07"

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        yield pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=8))
        yield from super().opened(opening)


class AcceptsAnyConfig(CorrectServer):
    breaks = "R33"

    def reward(self) -> pb.Reward:
        reward = super().reward()
        reward.config_schema_json = '{"type": "object", "additionalProperties": false}'
        return reward


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


# Of batches.


class JoinsByPosition(CorrectServer):
    """The columns of the first group for all."""

    breaks = "R19"

    def results(self, batch: pb.Batch, keys: Sequence[str]) -> list[pb.Result]:
        results = super().results(batch, keys)
        if len(batch.groups) > 4:
            values = [result.score.value for result in results]
            for result, value in zip(results, sorted(values), strict=True):
                result.score.value = value
        return results


class OneResultPerReward(CorrectServer):
    """Keeps rewards by name, so that the second key takes the place of the first."""

    breaks = "R20"

    def session_keys(self, opening: pb.SessionOpen) -> Sequence[str]:
        return list({selection.name: selection.key for selection in opening.rewards}.values())


class IgnoresRewardKeys(CorrectServer):
    breaks = "R21"

    def wanted_keys(self, batch: pb.Batch, keys: Sequence[str]) -> Sequence[str]:
        return keys


class DiesOfNull(CorrectServer):
    breaks = "R22"

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        if group.columns["answer"].WhichOneof("kind") is None:
            raise KeyError("answer")
        return super().value(group, completion)


class SkipsEmptyTexts(CorrectServer):
    """`if completion.text` is no test of there being a completion."""

    breaks = "R23"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        empty = {c.completion_id for group in batch.groups for c in group.completions if not c.text}
        results = self.results(batch, keys)
        kept = [result for result in results if result.completion_id not in empty]
        yield pb.ScoreResponse(results=pb.Results(results=kept))
        yield pb.ScoreResponse(done=self.done(batch, results))


class DiesOfEmoji(CorrectServer):
    breaks = "R23"

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        completion.text.encode("utf-16-le").decode("ucs2" if "\U0001f680" in completion.text else "utf-16-le")
        return super().value(group, completion)


class DiesOfLongTexts(CorrectServer):
    breaks = "R24"

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        if len(completion.text) > 500_000:
            raise RecursionError("too deep")
        return super().value(group, completion)


class ReadsLessThanItSays(CorrectServer):
    """gRPC's own limit was not raised together with the announcement."""

    breaks = "R25"
    receives_bytes = 2 * 2**20


class NothingAboveTheWindow(CorrectServer):
    breaks = "R26"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        if sum(len(group.completions) for group in batch.groups) > self.window:
            failure = pb.Failure(code=pb.Failure.CODE_LIMIT_EXCEEDED, message="too many")
            yield pb.ScoreResponse(rejected=pb.BatchRejected(batch_id=batch.batch_id, failure=failure))
        else:
            async for frame in super().answer(batch, keys):
                yield frame


class OneBadRowFailsAll(CorrectServer):
    breaks = "R27"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        if any("answer" not in group.columns for group in batch.groups):
            failure = pb.Failure(code=pb.Failure.CODE_INVALID, message="a row has no answer")
            yield pb.ScoreResponse(rejected=pb.BatchRejected(batch_id=batch.batch_id, failure=failure))
        else:
            async for frame in super().answer(batch, keys):
                yield frame


class EndsOnCancel(CorrectServer):
    breaks = "R28"

    async def cancelled(self, context: Context) -> None:
        await context.abort(grpc.StatusCode.CANCELLED, "as you wish")


class DoneInBothPlaces(CorrectServer):
    breaks = "R32"

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        self.bundles = opening.reads_bundled_done
        yield from super().opened(opening)

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        if self.bundles:
            results = self.results(batch, keys)
            yield pb.ScoreResponse(results=pb.Results(results=results, done=[self.done(batch, results)]))
            yield pb.ScoreResponse(done=self.done(batch, results))
        else:
            async for frame in super().answer(batch, keys):
                yield frame


# Of sessions.


class KeysInAGlobal(CorrectServer):
    breaks = "R29"

    def __init__(self) -> None:
        super().__init__()
        self.keys: Sequence[str] = ()

    def session_keys(self, opening: pb.SessionOpen) -> Sequence[str]:
        self.keys = super().session_keys(opening)
        return self.keys

    def wanted_keys(self, batch: pb.Batch, keys: Sequence[str]) -> Sequence[str]:
        return tuple(batch.reward_keys) or self.keys


class SaysItHoldsWhatItDoesNot(CorrectServer):
    breaks = "R30"

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        (first,) = super().opened(opening)
        assert isinstance(first, pb.ScoreResponse)
        first.opened.retained_batch_ids.extend(opening.pending_batch_ids)
        yield first


class LosesOneInAThousand(CorrectServer):
    breaks = "R31"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        before = self.scored
        async for frame in super().answer(batch, keys):
            if (
                isinstance(frame, pb.ScoreResponse)
                and frame.HasField("results")
                and len(frame.results.results) == 64
                and before // 640 != self.scored // 640
            ):
                del frame.results.results[5]
            yield frame


class MakesNumbersFloats(CorrectServer):
    """72 becomes "72.0", as by google.protobuf.Struct."""

    breaks = "R34"

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        answer = group.columns["answer"]
        if answer.WhichOneof("kind") == "int_value":
            return float(str(float(answer.int_value)) in completion.text)
        return super().value(group, completion)


class WearsOut(CorrectServer):
    """Takes no new streams once it has had some."""

    breaks = "R35"

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        if self.scored > 500:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many open files")
        return self.info()


# Of what is optional, and was announced.


class PraisesTheBad(CorrectServer):
    breaks = "O25"

    async def MakeExamples(
        self, request: pb.MakeExamplesRequest, context: Context
    ) -> pb.MakeExamplesResponse:
        made = await super().MakeExamples(request, context)
        for entry in made.examples:
            entry.good_texts[:], entry.bad_texts[:] = list(entry.bad_texts), list(entry.good_texts)
        return made


class NotHealthy(CorrectServer):
    breaks = "O02"
    health = health_pb2.HealthCheckResponse.NOT_SERVING


class TalksTooMuch(CorrectServer):
    breaks = "O04"

    def result(self, *of: Any) -> pb.Result:
        result = super().result(*of)
        if result.HasField("score"):
            result.score.explanation = "because " * 600
        return result


class Random(CorrectServer):
    """And says that it is deterministic."""

    breaks = "O05"

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        return random.random()


class IgnoresTimeouts(CorrectServer):
    breaks = "O06"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        if batch.timeout.ToTimedelta().total_seconds() < 1:
            await asyncio.sleep(30)
        async for frame in super().answer(batch, keys):
            yield frame


class GoesOnAfterCancel(CorrectServer):
    breaks = "O07"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.capabilities.cancellation = True
        return info

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        if sum(len(group.completions) for group in batch.groups) == self.window:
            await asyncio.sleep(1.2)
        async for frame in super().answer(batch, keys):
            yield frame


class ForgetsWhatItPromised(CorrectServer):
    breaks = "O10"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.capabilities.result_retention.FromSeconds(60)
        return info


class OtherScoresAtOnce(CorrectServer):
    breaks = "O22"

    async def ScoreOnce(self, request: pb.ScoreOnceRequest, context: Context) -> pb.ScoreOnceResponse:
        answer = await super().ScoreOnce(request, context)
        for result in answer.results:
            result.score.value = 1.0 - result.score.value
        return answer


def _subclasses() -> list[type[CorrectServer]]:
    here = vars(sys.modules[__name__]).values()
    return [found for found in here if isinstance(found, type) and issubclass(found, CorrectServer)]


FAULTS: dict[str, type[CorrectServer]] = {
    found.__name__: found for found in _subclasses() if found is not CorrectServer
}
