"""What waits for the workers of one program, and what came of it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Outcome, Scored
from reward_service._item import Item
from reward_service.sandbox._prints import PrintLog
from reward_service.sandbox._worker import WorkerBroke
from reward_service.sandbox.program import Program, ProgramRefused, Signature

log = structlog.get_logger(__name__)

_PORTION_SECONDS: Final = 0.03
"""Work that goes to a worker at once: enough to hide the way there, and soon over for whoever waits."""
_FIRST_CALLS: Final = 4
_MOST_CALLS: Final = 64
_MOST_PORTION_CHARACTERS: Final = 2_000_000
_SMOOTHING: Final = 0.5
_BREAKS_IN_A_ROW: Final = 8
_TRIPPED_SECONDS: Final = 10.0


@dataclass(slots=True)
class Waiting:
    """A completion, and who waits for what is said of it."""

    item: Item[Any]
    outcome: asyncio.Future[Outcome]


class Portion:
    """Completions that go to a worker at once, in calls of the program's batch size."""

    def __init__(self, program: Program, name: str, waiting: Sequence[Waiting]) -> None:
        self.program = program
        self.is_last = False
        self.replied_calls = 0
        self.kill: Callable[[], None] | None = None
        self._name = name
        self._waiting = waiting
        self.began_at = time.monotonic()

    @property
    def calls(self) -> int:
        """Calls that the worker makes of it."""
        return math.ceil(len(self._waiting) / self.program.batch_size)

    def request(self) -> bytes:
        """The frame that asks for them."""
        return self.program.run_request([one.item for one in self._waiting])

    def take_reply(self, frame: Mapping[str, Any]) -> None:
        """The answer of a call, in their order. ValueError and the like where it is none."""
        current = self.current_call()
        error = frame.get("error")
        if error is not None:
            _settle(current, Failed(FailureCode.INTERNAL, f"{self._name} {error}"))
        else:
            values, metrics, extra = frame["values"], frame.get("metrics", {}), frame.get("extra", {})
            if len(values) != len(current):
                raise ValueError("another number of values than of completions")
            for index, (one, value) in enumerate(zip(current, values, strict=True)):
                _settle([one], self._outcome(value, metrics, str(extra.get(str(index), ""))))
        self.is_last = frame.get("last") is True
        self.replied_calls += 1

    def current_call(self) -> Sequence[Waiting]:
        """The completions of the first call that has no answer."""
        start = self.replied_calls * self.program.batch_size
        return self._waiting[start : start + self.program.batch_size]

    def untouched(self) -> Sequence[Waiting]:
        """The completions of the calls after that one."""
        return self._waiting[(self.replied_calls + 1) * self.program.batch_size :]

    def unanswered(self) -> Sequence[Waiting]:
        """The completions of all calls that have no answer."""
        return self._waiting[self.replied_calls * self.program.batch_size :]

    def _outcome(self, value: object, metrics: Mapping[str, float], explanation: str) -> Outcome:
        if value is None:
            return NotApplicable(explanation)
        if isinstance(value, dict):
            return Failed(FailureCode.INTERNAL, f"{self._name} {value['error']}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError("a value that is no number")
        return Scored(float(value), metrics, explanation)


class ProgramQueue:
    """One program: who waits for it, how fast it is, and whether it breaks its workers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.signature: asyncio.Future[Signature] = asyncio.get_running_loop().create_future()
        self.waiting: deque[Waiting] = deque()
        self.prints = PrintLog(program.filename)
        self.workers = 0
        self.breaks = 0
        """Calls in a row that broke a limit."""
        self.takers = 0
        """Workers that are on their way to take a portion."""
        self._running: set[Portion] = set()
        self._seconds_a_call: float | None = None
        self._tripped: tuple[float, Failed] | None = None

    @property
    def is_unused(self) -> bool:
        """Whether nobody waits and nobody works for it."""
        return not self.waiting and not self.workers

    @property
    def wants_worker(self) -> bool:
        """Whether another worker would find something to do."""
        if not self.signature.done():
            return self.workers == 0
        return math.ceil(len(self.waiting) / (self._portion_calls() * self.program.batch_size)) > self.takers

    @property
    def tripped_outcome(self) -> Failed | None:
        """What new completions end as, while the program is left alone for having broken its workers."""
        if self._tripped is None or self._tripped[0] < time.monotonic():
            return None
        return self._tripped[1]

    def take_portion(self) -> Portion | None:
        """The next completions, as many as are worth a frame."""
        most = self._portion_calls() * self.program.batch_size
        taken: list[Waiting] = []
        characters = 0
        while self.waiting and len(taken) < most and characters < _MOST_PORTION_CHARACTERS:
            one = self.waiting.popleft()
            if not one.outcome.done():
                taken.append(one)
                characters += len(one.item.completion.text)
        if not taken:
            return None
        portion = Portion(self.program, self.signature.result().name, taken)
        self._running.add(portion)
        return portion

    def loaded(self, signature: Signature) -> None:
        """A worker has loaded the program."""
        if not self.signature.done():
            self.signature.set_result(signature)

    def refused(self, refused: ProgramRefused) -> None:
        """The program does not load."""
        if not self.signature.done():
            self.signature.set_exception(refused)
            self.signature.exception()  # there may be nobody left to ask for it
        failed = Failed(FailureCode.INTERNAL, f"the source {refused}")
        while self.waiting:
            _settle([self.waiting.popleft()], failed)

    def finished(self, portion: Portion) -> None:
        """All calls of a portion were answered, or the worker asked to be replaced after one of them."""
        self._running.discard(portion)
        self.waiting.extendleft(reversed(portion.unanswered()))
        self.breaks = 0
        seconds = (time.monotonic() - portion.began_at) / max(1, portion.replied_calls)
        before = self._seconds_a_call
        self._seconds_a_call = seconds if before is None else before + _SMOOTHING * (seconds - before)

    def broke(self, portion: Portion, broke: WorkerBroke) -> None:
        """A worker was lost in a call: its completions fail, those after it wait for another worker."""
        self._running.discard(portion)
        self.waiting.extendleft(reversed(portion.untouched()))
        if broke.code is FailureCode.CANCELLED:
            return
        name = self.signature.result().name
        _settle(portion.current_call(), Failed(broke.code, f"{name} {broke.message}"))
        log.warning(
            "a reward lost its worker", source=self.program.filename, code=broke.code, reason=broke.message
        )
        self.breaks += 1
        if self.breaks >= _BREAKS_IN_A_ROW:
            why = f"{self.breaks} calls in a row broke a limit; the last one {broke.message}"
            self._trip(Failed(broke.code, f"{name} was not tried: {why}"))

    def forget_cancelled(self) -> None:
        """Completions were taken back: a worker that is at nothing else is killed."""
        self.waiting = deque(one for one in self.waiting if not one.outcome.done())
        for portion in self._running:
            if portion.kill is not None and all(one.outcome.done() for one in portion.current_call()):
                portion.kill()

    def _trip(self, failed: Failed) -> None:
        self.breaks = 0
        self._tripped = (time.monotonic() + _TRIPPED_SECONDS, failed)
        while self.waiting:
            _settle([self.waiting.popleft()], failed)

    def _portion_calls(self) -> int:
        if self._seconds_a_call is None:
            return _FIRST_CALLS
        return max(1, min(_MOST_CALLS, int(_PORTION_SECONDS / max(self._seconds_a_call, 1e-6))))


def _settle(waiting: Sequence[Waiting], outcome: Outcome) -> None:
    for one in waiting:
        if not one.outcome.done():
            one.outcome.set_result(outcome)
