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
from plaudit.types.scoring import Completion, Failed, Prompt, Purpose

BREAKS_TOLERATED: Final = 3
"""A batch open at so many breaks is suspected of causing them, and is sent in parts, each alone."""

# Tags and lengths around a prompt and a batch: more than they can take.
_PROMPT_FRAMING: Final = 16
_BATCH_FRAMING: Final = 192
_KEY_BYTES: Final = 66

AnswerId = tuple[str, str]
"""What a server owes one answer for: completion id and reward key."""


class PromptHead(NamedTuple):
    """A prompt as it is sent, without completions; one for all of its group."""

    prompt: Prompt
    message: pb.PromptGroup
    size: int
    """Bytes of the message."""


class Terms(NamedTuple):
    """How completions were handed in; one for all that were handed in alike."""

    step: int
    purpose: Purpose
    group_size: int
    reward_names: tuple[str, ...]
    wants_all: bool
    """Whether reward_names are all rewards of the job."""


class Submission:
    """A completion that was handed in, until it is taken. Times are the event loop's, in seconds."""

    __slots__ = (
        "completion",
        "completion_bytes",
        "completion_id",
        "head",
        "is_complete",
        "outcomes",
        "submitted_at",
        "taken",
        "terms",
        "whole_by",
    )

    def __init__(
        self,
        completion: Completion,
        completion_bytes: int,
        head: PromptHead,
        terms: Terms,
        submitted_at: float,
    ) -> None:
        """`completion_bytes` bounds its encoded size."""
        self.completion_id = completion.completion_id
        self.completion = completion
        self.completion_bytes = completion_bytes
        self.head = head
        self.terms = terms
        self.submitted_at = submitted_at
        self.whole_by = math.inf
        """When its group has to be whole: some time after somebody began to wait for it."""
        self.outcomes: dict[str, ScoredOutcome] = {}
        self.is_complete = not terms.reward_names
        """Whether every reward has an accepted outcome."""
        self.taken = False

    @property
    def group_id(self) -> str:
        """Of its prompt."""
        return self.head.prompt.group_id


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


class Patience(NamedTuple):
    """How long, and how often, the job has a reward tried."""

    timeout_seconds: float
    max_attempts: int
    retry_seconds: float


class Lane(NamedTuple):
    """Rewards of a server that can share a batch: one patience, one scope."""

    keys: tuple[str, ...]
    patience: Patience
    whole_group: bool


class BatchKind(NamedTuple):
    """What the units of one batch have in common."""

    keys: tuple[str, ...]
    patience: Patience
    step: int
    purpose: Purpose
    is_retry: bool
    apart: int
    """0, or the number of a part that travels by itself."""
    failed_at: frozenset[str] = frozenset()
    """Addresses of the replicas that failed it; another one is to try it, where there is one."""


class Unit:
    """What is sent and tried again as a whole: a completion, or a group where a reward sees it whole."""

    __slots__ = (
        "_group",
        "attempts",
        "breaks",
        "completions",
        "failures",
        "first",
        "first_sent_at",
        "frame_bytes",
        "is_settled",
        "kind",
        "open_answers",
        "ready_at",
        "timeouts",
    )

    def __init__(self, submissions: tuple[Submission, ...], kind: BatchKind, ready_at: float) -> None:
        first = submissions[0]
        self.first = first
        self.completions = len(submissions)
        self.kind = kind
        self.ready_at = ready_at
        self.frame_bytes = first.head.size + _PROMPT_FRAMING + first.completion_bytes
        """Upper bound of its share of a frame in which its prompt is not yet."""
        # One tuple less for each completion of nearly all runs, for the garbage collector to walk over.
        self._group: tuple[Submission, ...] | None = None
        if self.completions > 1:
            self._group = submissions
            self.frame_bytes += sum(submission.completion_bytes for submission in submissions[1:])
        self.attempts = 0
        """Batches that it has travelled in and that were answered, or given up."""
        self.timeouts = 0
        self.breaks = 0
        self.first_sent_at = math.inf
        """Infinite where it was never sent."""
        self.open_answers = 0
        self.failures: dict[AnswerId, Failed] | None = None
        """Answers of the batch under way that may be worth another try."""
        self.is_settled = False
        """Whether all answers were in once and acted upon: a replay after a break must not act again."""

    @property
    def submissions(self) -> tuple[Submission, ...]:
        """Its completions."""
        return self._group or (self.first,)

    def again(self, ready_at: float, apart: int = 0, *, failed_at: frozenset[str] | None = None) -> Unit:
        """What is open of it, for another batch; `apart` and `failed_at` as in BatchKind, None: as it was."""
        kind = self.kind._replace(
            keys=self.open_keys(),
            is_retry=True,
            apart=apart,
            failed_at=self.kind.failed_at if failed_at is None else failed_at,
        )
        unit = Unit(self.submissions, kind, ready_at)
        unit.attempts = self.attempts
        unit.timeouts = self.timeouts
        unit.breaks = self.breaks
        unit.first_sent_at = self.first_sent_at
        return unit

    def submission(self, completion_id: str) -> Submission:
        """The one of its completions that has this id."""
        if self.completions == 1:
            return self.first
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
        return self.first.taken and all(s.taken for s in self.submissions)

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
    break_reason: str = ""
    """Of the last break, for people."""
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

    @property
    def is_settled(self) -> bool:
        """Whether all that was asked was acted upon."""
        return all(unit.is_settled for unit in self.units)

    @property
    def latest_end(self) -> float:
        """When the last try that its budget allows would end, event loop time."""
        first = max(unit.first_sent_at for unit in self.units)
        return first + self.kind.patience.retry_seconds + self.timeout_seconds

    def submission(self, completion_id: str) -> Submission | None:
        """The completion in it that has this id."""
        submissions = (s for unit in self.units for s in unit.submissions)
        return next((s for s in submissions if s.completion_id == completion_id), None)

    def restart(self, now: float) -> None:
        """Owes all answers, as at the start of a stream."""
        keys = self.kind.keys
        self.open_completions = self.completions
        self.invalid.clear()
        waiting = self.waiting = {}
        count = len(keys)
        for unit in self.units:
            unit.open_answers = unit.completions * count
            unit.failures = None
            if unit.first_sent_at == math.inf:
                unit.first_sent_at = now
            if unit.completions == count == 1:
                waiting[unit.first.completion_id, keys[0]] = unit
                continue
            for submission in unit.submissions:
                for key in keys:
                    waiting[submission.completion_id, key] = unit

    def stop_timer(self) -> None:
        """No deadline is watched any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
