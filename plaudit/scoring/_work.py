"""Work on its way: a completion that was submitted, the unit that is sent whole, and a batch of units."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring._outcomes import ScoredOutcome
from plaudit.types.scoring import Completion, Failed, Purpose

BREAKS_TOLERATED: Final = 3
"""A batch open at so many breaks is suspected of causing them, and is sent in parts, each alone."""

# Tags and lengths around a prompt and a batch: more than they can take.
_PROMPT_FRAMING: Final = 16
_BATCH_FRAMING: Final = 128
_KEY_BYTES: Final = 66

AnswerId = tuple[str, str]
"""What a server owes one answer for: completion id and reward key."""


@dataclass(slots=True, eq=False)
class Submission:
    """A completion that was handed in, until it is taken. Times are the event loop's, in seconds."""

    completion_id: str
    group_id: str
    prompt: pb.PromptGroup
    prompt_bytes: int
    completion: Completion
    completion_bytes: int
    step: int
    purpose: Purpose
    group_size: int
    reward_names: tuple[str, ...]
    wants_all: bool
    """Whether reward_names are all rewards of the job."""
    submitted_at: float
    whole_by: float = math.inf
    """When its group has to be whole: some time after somebody began to wait for it."""
    outcomes: dict[str, ScoredOutcome] = field(default_factory=dict)
    is_complete: bool = False
    """Whether every reward has an accepted outcome."""
    taken: bool = False


class Moment(NamedTuple):
    """One moment on both clocks, read once for all that happens in it."""

    monotonic: float
    """The event loop's time, seconds."""
    wall: datetime
    """UTC."""

    @classmethod
    def now(cls) -> Self:
        """This one."""
        return cls(time.monotonic(), datetime.now(UTC))


class Lane(NamedTuple):
    """Rewards of a server that can share a batch: one timeout, one scope."""

    keys: tuple[str, ...]
    timeout_seconds: float
    whole_group: bool


class BatchKind(NamedTuple):
    """What the units of one batch have in common."""

    keys: tuple[str, ...]
    timeout_seconds: float
    step: int
    purpose: Purpose
    is_retry: bool
    apart: int
    """0, or the number of a part that travels by itself."""


@dataclass(slots=True, eq=False)
class Unit:
    """What is sent and tried again as a whole: a completion, or a group where a reward sees it whole."""

    submissions: tuple[Submission, ...]
    kind: BatchKind
    ready_at: float
    attempts: int = 0
    """Batches that it has travelled in and that were answered, or given up."""
    timeouts: int = 0
    breaks: int = 0
    first_sent_at: float = math.inf
    """Infinite where it was never sent."""
    open_answers: int = 0
    failures: dict[AnswerId, Failed] | None = None
    """Answers of the batch under way that may be worth another try."""
    is_settled: bool = False
    """Whether all answers were in once and acted upon: a replay after a break must not act again."""
    completions: int = field(init=False)
    frame_bytes: int = field(init=False)
    """Upper bound of its share of a frame in which its prompt is not yet."""

    def __post_init__(self) -> None:
        self.completions = len(self.submissions)
        self.frame_bytes = self.submissions[0].prompt_bytes + _PROMPT_FRAMING
        for submission in self.submissions:
            self.frame_bytes += submission.completion_bytes

    def submission(self, completion_id: str) -> Submission:
        """The one of its completions that has this id."""
        first = self.submissions[0]
        if self.completions == 1:
            return first
        return next(s for s in self.submissions if s.completion_id == completion_id)

    @property
    def must_be_alone(self) -> bool:
        """Whether nothing else may be under way beside it: it is suspected of breaking connections."""
        return self.breaks >= BREAKS_TOLERATED

    @property
    def was_sent(self) -> bool:
        """Whether it ever was on its way."""
        return self.first_sent_at < math.inf

    @property
    def is_taken(self) -> bool:
        """Whether nobody waits for any of it any more."""
        return self.submissions[0].taken and all(s.taken for s in self.submissions)

    def open_keys(self) -> tuple[str, ...]:
        """Keys without an accepted outcome for one of the completions at least."""
        return tuple(key for key in self.kind.keys if any(key not in s.outcomes for s in self.submissions))


def envelope_bytes(keys: tuple[str, ...]) -> int:
    """Upper bound of what a batch takes beside its units."""
    return _BATCH_FRAMING + _KEY_BYTES * len(keys)


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch that a replica has, or had when the connection broke."""

    batch_id: str
    frame: pb.ScoreRequest
    kind: BatchKind
    timeout_seconds: float
    units: list[Unit]
    completions: int
    breaks: int = 0
    open_completions: int = 0
    waiting: dict[AnswerId, Unit] = field(default_factory=dict)
    """Answers that this stream still owes."""
    invalid: dict[AnswerId, str] = field(default_factory=dict)
    """Answers that came and cannot be used, and why."""
    written: bool = False
    give_up_at: float = 0.0
    timer: asyncio.TimerHandle | None = None

    @property
    def answer_count(self) -> int:
        """Answers that a server owes for it."""
        return self.completions * len(self.kind.keys)

    @property
    def must_be_alone(self) -> bool:
        """Whether nothing else may be under way beside it."""
        return self.breaks >= BREAKS_TOLERATED

    def submission(self, completion_id: str) -> Submission | None:
        """The completion in it that has this id."""
        submissions = (s for unit in self.units for s in unit.submissions)
        return next((s for s in submissions if s.completion_id == completion_id), None)

    def restart(self, now: float) -> None:
        """Owes all answers, as at the start of a stream."""
        keys = self.kind.keys
        self.open_completions = self.completions
        self.waiting = {
            (submission.completion_id, key): unit
            for unit in self.units
            for submission in unit.submissions
            for key in keys
        }
        self.invalid.clear()
        for unit in self.units:
            unit.open_answers = unit.completions * len(keys)
            unit.failures = None
            if not unit.was_sent:
                unit.first_sent_at = now

    def stop_timer(self) -> None:
        """No deadline is watched any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
