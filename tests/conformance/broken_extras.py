"""Servers with a fault in what is optional, and was announced. See broken_servers.py."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

from correct_server import Context, CorrectServer, Frame
from grpc_health.v1 import health_pb2

from plaudit.reward.v1 import reward_service_pb2 as pb


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
