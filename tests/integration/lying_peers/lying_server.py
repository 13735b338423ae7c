"""A reward server that lies at random, and keeps a list of its lies. An honest score is the text's length."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import grpc
from scoring_servers import Answers, Requests, completions_of, opened

from plaudit.reward.v1 import reward_service_pb2 as pb

RANGED: Final = pb.Reward(
    name="length", scope=pb.Reward.SCOPE_COMPLETION, min_value=0.0, max_value=100.0, deterministic=True
)

HUGE_EXPLANATION: Final = "because " * 100_000


class Liar:
    """`said` counts, by cause, what the client is to find; `lied_about` holds ids without a usable result."""

    def __init__(self, seed: int) -> None:
        self.said: Counter[str] = Counter()
        self.lied_about: set[str] = set()
        self._random = random.Random(seed)
        self._vices: tuple[Callable[[pb.Batch, str, float], list[pb.Result]], ...] = (
            self._not_finite,
            self._out_of_range,
            self._empty,
            self._missing,
            self._twice,
            self._another_mind,
            self._never_asked,
            self._of_another_session,
            self._under_another_key,
            self._at_great_length,
            self._failing_without_a_code,
            self._to_be_tried_in_an_age,
        )

    def script(self, session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        """Answers each batch, honestly for half of its completions."""
        yield opened()
        self.said["reopened"] += 1
        yield opened(window=1)
        for request in requests:
            if request.HasField("batch"):
                yield from self._answers(request.batch)

    def _answers(self, batch: pb.Batch) -> Answers:
        results: list[pb.Result] = []
        for completion in completions_of(batch):
            completion_id, value = completion.completion_id, float(len(completion.text))
            if self._random.random() < 0.5:
                results.append(_score(batch, completion_id, value))
            else:
                results += self._random.choice(self._vices)(batch, completion_id, value)
        total = len(completions_of(batch))
        wrong = self._random.choice((0, 0, 7))
        self.said["miscounted"] += bool(wrong)
        done = pb.BatchDone(batch_id=batch.batch_id, scored_count=total + wrong)
        half = len(results) // 2
        yield pb.ScoreResponse(results=pb.Results(results=results[:half]))
        yield pb.ScoreResponse(results=pb.Results(results=results[half:], done=[done]))
        # After the end: one more of each.
        self.said["unknown"] += 2
        yield pb.ScoreResponse(results=pb.Results(results=[_score(batch, completion_id, 99.0)]))
        yield pb.ScoreResponse(done=done)

    def _not_finite(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["non_finite"] += 1
        self.lied_about.add(completion_id)
        return [_score(batch, completion_id, self._random.choice((math.nan, math.inf, -math.inf)))]

    def _out_of_range(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["out_of_range"] += 1
        self.lied_about.add(completion_id)
        return [_score(batch, completion_id, self._random.choice((1e308, -1e308, 100.0001, -5e-324)))]

    def _empty(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["empty"] += 1
        self.lied_about.add(completion_id)
        return [pb.Result(batch_id=batch.batch_id, completion_id=completion_id, reward_key="length")]

    def _missing(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["missing"] += 1
        self.lied_about.add(completion_id)
        return []

    def _twice(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["doubled"] += 1
        return [_score(batch, completion_id, honest)] * 2

    def _another_mind(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["doubled"] += 1
        self.said["differing"] += 1
        return [_score(batch, completion_id, honest), _score(batch, completion_id, 77.0)]

    def _never_asked(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["unknown"] += 1
        return [_score(batch, "nobody", 77.0), _score(batch, completion_id, honest)]

    def _of_another_session(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["unknown"] += 1
        stranger = pb.Batch(batch_id="6f2e0d30-0000-4000-8000-000000000000")
        return [_score(stranger, completion_id, 77.0), _score(batch, completion_id, honest)]

    def _under_another_key(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["unknown"] += 1
        stray = _score(batch, completion_id, 77.0)
        stray.reward_key = "height"
        return [stray, _score(batch, completion_id, honest)]

    def _at_great_length(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        result = _score(batch, completion_id, honest)
        result.score.explanation = HUGE_EXPLANATION
        result.score.metrics["not a number"] = math.nan
        for part in range(200):
            result.score.metrics[f"part {part} {'x' * 500}"] = 1.0
        return [result]

    def _failing_without_a_code(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.lied_about.add(completion_id)
        result = _score(batch, completion_id, honest)
        result.failure.message = HUGE_EXPLANATION
        return [result]

    def _to_be_tried_in_an_age(self, batch: pb.Batch, completion_id: str, honest: float) -> list[pb.Result]:
        self.said["mistimed"] += 1
        self.lied_about.add(completion_id)
        result = _score(batch, completion_id, honest)
        result.failure.code = pb.Failure.CODE_UNAVAILABLE
        result.failure.retry_delay.seconds = 2**62
        return [result]


def _score(batch: pb.Batch, completion_id: str, value: float) -> pb.Result:
    return pb.Result(
        batch_id=batch.batch_id, completion_id=completion_id, reward_key="length", score=pb.Score(value=value)
    )
