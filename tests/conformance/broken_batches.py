"""Servers with a fault in what they make of batches, or over several sessions. See broken_servers.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import grpc
import grpc.aio
from correct_server import Context, CorrectServer, Frame

from plaudit.reward.v1 import reward_service_pb2 as pb

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


class FewerScoresThanIds(CorrectServer):
    """As one that leaves out zeros."""

    breaks = "R32"

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        self.plain = opening.reads_plain_scores
        yield from super().opened(opening)

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        if not self.plain:
            async for frame in super().answer(batch, keys):
                yield frame
            return
        results = self.results(batch, keys)
        scores = plain_scores(results)
        scores.values.pop()
        yield pb.ScoreResponse(results=pb.Results(plain_scores=[scores]))
        yield pb.ScoreResponse(done=self.done(batch, results))


class PlainScoresForAll(CorrectServer):
    """Also where the client does not read them, which sees no result then."""

    breaks = "R16"

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        results = self.results(batch, keys)
        if len(keys) == 1 and all(result.HasField("score") for result in results):
            yield pb.ScoreResponse(results=pb.Results(plain_scores=[plain_scores(results)]))
            yield pb.ScoreResponse(done=self.done(batch, results))
        else:
            async for frame in super().answer(batch, keys):
                yield frame


def plain_scores(results: Sequence[pb.Result]) -> pb.PlainScores:
    """Scores of one batch and one key in their short form."""
    return pb.PlainScores(
        batch_id=results[0].batch_id,
        reward_key=results[0].reward_key,
        completion_ids=[result.completion_id for result in results],
        values=[result.score.value for result in results],
    )


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
