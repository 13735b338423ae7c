"""Scores rows with a function, as a job would and as no job would, and keeps what came of it."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from plaudit.errors import UnavailableError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import duration_seconds, error_from_rpc

# The edge to the wire is the scorer's; what is asked here, in which order and in which company, is not.
from plaudit.scoring._convert import failed, prompt_message, scored, valid_text
from plaudit.trial._rows import TrialRow
from plaudit.types.scoring import NotApplicable, Outcome

Value = TypeVar("Value")

PADDING: Final = "\n" + "Let me think about this once more, carefully and step by step. " * 30
EMPTY_ANSWERS: Final = ("", " ", "\n", ":", ".")

_MOST_SINGLE: Final = 32
_MOST_PADDED: Final = 32
_MOST_EMPTY_ROWS: Final = 32
_BATCH_COMPLETIONS: Final = 256
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of a batch with several completions: with its rows it stays below what a message holds."""
_SHUFFLED_COMPLETIONS: Final = 7
_TOGETHER: Final = 8
_CALL_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion of a row."""

    row: TrialRow
    text: str


@dataclass(slots=True)
class Said:
    """What was said of a completion, and in how many seconds."""

    outcome: Outcome
    seconds: float


@dataclass(slots=True)
class Trial:
    """Everything that was asked and answered. Lists that stand beside each other have one order."""

    asks: list[Ask]
    first: list[Said] = field(default_factory=list)
    again: list[Said] = field(default_factory=list)
    """The same, in another order and in other batches."""
    together: list[Said] = field(default_factory=list)
    """The same, with several completions in a call; empty where the job's calls have several anyway."""
    alone: list[tuple[Ask, Said]] = field(default_factory=list)
    """Some of them, one at a time, as latency is measured."""
    padded: list[tuple[int, Said]] = field(default_factory=list)
    """Some of them with padding, by their place in `asks`."""
    empty: list[tuple[TrialRow, list[Said]]] = field(default_factory=list)
    """Answers that say nothing, for some of the rows."""
    seconds: float = 0.0
    """How long the first scoring took, all together."""


class Asker:
    """Asks the built-in server about completions of one function."""

    def __init__(self, channel: grpc.aio.Channel, config: dict[str, Any]) -> None:
        self._stub = pb_grpc.RewardServiceStub(channel)
        self._config = config
        self._batch_ids = itertools.count(1)

    async def check(self) -> None:
        """Has the server look at the function. Raises InvalidArgumentError with what is wrong with it."""
        await self._call(self._request(self._config, pb.Batch()))

    async def ask(self, asks: Sequence[Ask], batch_size: int | None = None) -> list[Said]:
        """What the function says of each, in one batch; `batch_size` replaces that of the config."""
        groups: list[pb.PromptGroup] = []
        for index, ask in enumerate(asks):
            if not index or asks[index - 1].row is not ask.row:
                groups.append(prompt_message(ask.row.prompt))
            text = valid_text(ask.text)
            groups[-1].completions.add(completion_id=str(index), text=text, token_count=len(text.split()))
        batch = pb.Batch(batch_id=str(next(self._batch_ids)), groups=groups)
        batch.timeout.FromSeconds(int(_CALL_SECONDS))
        config = self._config if batch_size is None else {**self._config, "batch_size": batch_size}
        answer = await self._call(self._request(config, batch))
        by_id = {result.completion_id: result for result in answer.results}
        return [_said(by_id[str(index)]) for index in range(len(asks))]

    def _request(self, config: dict[str, Any], batch: pb.Batch) -> pb.ScoreOnceRequest:
        selection = pb.RewardSelection(key="tried", name="python_function", config_json=json.dumps(config))
        return pb.ScoreOnceRequest(rewards=[selection], batch=batch)

    async def _call(self, request: pb.ScoreOnceRequest) -> pb.ScoreOnceResponse:
        try:
            answer: pb.ScoreOnceResponse = await self._stub.ScoreOnce(request, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return answer


async def try_function(asker: Asker, rows: Sequence[TrialRow], *, calls_have_several: bool) -> Trial:
    """Scores all completions of `rows`, then again in other ways."""
    trial = Trial([Ask(row, text) for row in rows for text in row.completions])
    started = time.perf_counter()
    trial.first = await _in_batches(asker, trial.asks, _BATCH_COMPLETIONS)
    trial.seconds = time.perf_counter() - started
    places = list(range(len(trial.asks)))
    random.Random(0).shuffle(places)  # the same trial for the same file
    shuffled = await _in_batches(asker, [trial.asks[place] for place in places], _SHUFFLED_COMPLETIONS)
    trial.again = [said for _, said in sorted(zip(places, shuffled, strict=True), key=lambda pair: pair[0])]
    if not calls_have_several:
        trial.together = await _in_batches(asker, trial.asks, _BATCH_COMPLETIONS, batch_size=_TOGETHER)
    for ask in _some(trial.asks, _MOST_SINGLE):
        trial.alone.append((ask, (await asker.ask([ask]))[0]))
    worded = [place for place, ask in enumerate(trial.asks) if ask.text.strip()]
    chosen = _some(worded, _MOST_PADDED)
    padded = [Ask(trial.asks[place].row, trial.asks[place].text + PADDING) for place in chosen]
    trial.padded = list(zip(chosen, await _in_batches(asker, padded, _BATCH_COMPLETIONS), strict=True))
    for row in _some(rows, _MOST_EMPTY_ROWS):
        trial.empty.append((row, await asker.ask([Ask(row, text) for text in EMPTY_ANSWERS])))
    return trial


async def _in_batches(
    asker: Asker, asks: Sequence[Ask], size: int, batch_size: int | None = None
) -> list[Said]:
    said: list[Said] = []
    for batch in _batches(asks, size):
        said += await asker.ask(batch, batch_size)
    return said


def _batches(asks: Sequence[Ask], size: int) -> Iterator[list[Ask]]:
    """Parts of at most `size` completions and of `_BATCH_BYTES`; one that has more goes alone."""
    batch: list[Ask] = []
    held_bytes = 0
    for ask in asks:
        needed_bytes = len(valid_text(ask.text).encode())
        if not batch or batch[-1].row is not ask.row:
            needed_bytes += prompt_message(ask.row.prompt).ByteSize()
        if batch and (len(batch) == size or held_bytes + needed_bytes > _BATCH_BYTES):
            yield batch
            batch, held_bytes = [], 0
        batch.append(ask)
        held_bytes += needed_bytes
    if batch:
        yield batch


def _some(values: Sequence[Value], most: int) -> Sequence[Value]:
    """At most so many, spread over all."""
    step = max(1, -(-len(values) // most))
    return values[::step]


def _said(result: pb.Result) -> Said:
    seconds = duration_seconds(result.scoring_duration)
    match result.WhichOneof("outcome"):
        case "score":
            return Said(scored(result.score), seconds)
        case "not_applicable":
            return Said(NotApplicable(result.not_applicable.reason), seconds)
        case "failure":
            return Said(failed(result.failure), seconds)
    raise UnavailableError("the reward server sent a result without an outcome")
