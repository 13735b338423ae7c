"""Batches: what was asked for, and how far the scoring of it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

from plaudit.errors import FieldViolation
from plaudit.types.scoring import (
    Completion,
    Failed,
    FailureCode,
    NotApplicable,
    Outcome,
    Prompt,
    Purpose,
    Scored,
)

MAX_ID_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Group:
    """Completions of one prompt."""

    prompt: Prompt
    completions: Sequence[Completion]


@dataclass(frozen=True, slots=True)
class Batch:
    """Completions to score, as they came.

    `timeout` is in seconds, None where none was named. `trace_id` names the client's trace (W3C) that the
    batch belongs to, "" where there is none. `fingerprint` is equal for batches with equal groups and reward
    keys, within this process. `unreadable` names what could not be read of it.
    """

    batch_id: str
    groups: Sequence[Group]
    reward_keys: Sequence[str] = ()
    timeout: float | None = None
    step: int = 0
    purpose: Purpose | None = None
    trace_id: str = ""
    fingerprint: int = 0
    unreadable: Sequence[FieldViolation] = field(default=())

    @property
    def completion_count(self) -> int:
        """Completions over all groups."""
        return sum(len(group.completions) for group in self.groups)

    def keys_among(self, keys: Sequence[str]) -> tuple[str, ...]:
        """The reward keys to compute, out of the session's."""
        return tuple(self.reward_keys) or tuple(keys)


class Results(NamedTuple):
    """Outcomes of one reward for completions of one batch; scoring took `seconds`.

    Those that have all of this in common go together, as nearly all do that are ready together.
    """

    batch_id: str
    reward_key: str
    seconds: float
    completion_ids: list[str]
    outcomes: list[Outcome]


Report: TypeAlias = Callable[[Sequence[int], Sequence[Outcome], float], None]
"""Takes indexes of results, their outcomes, and the seconds that scoring them took."""


class Scorer(Protocol):
    """The rewards of a session. The engine knows no more of a reward than this."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the session's rewards."""

    @property
    def required_columns(self) -> Mapping[str, tuple[str, ...]]:
        """By key, the dataset columns that the reward needs under its config."""

    def start(self, batch: Batch, keys: Sequence[str], report: Report) -> Callable[[], None]:
        """Begins to score `batch` for `keys` and returns what stops it.

        The index of a result is that of its key times the number of completions, plus that of the
        completion. `report` may be called before this returns.
        """


def problems_of(batch: Batch, session_keys: Sequence[str]) -> list[FieldViolation]:
    """Everything that is wrong with a batch, by field."""
    wrong = list(batch.unreadable)
    if not (wrong or batch.reward_keys) and _is_well_formed(batch):
        return []
    if not batch.batch_id:
        wrong.append(
            FieldViolation("batch_id", "is empty; give each batch an id of its own, for example a UUID")
        )
    elif len(batch.batch_id) > MAX_ID_LENGTH:
        wrong.append(FieldViolation("batch_id", f"is longer than {MAX_ID_LENGTH} characters"))
    if not batch.groups:
        wrong.append(FieldViolation("groups", "is empty; a batch has at least one group"))
    first_use: dict[str, str] = {}
    for g, group in enumerate(batch.groups):
        if not group.completions:
            wrong.append(
                FieldViolation(f"groups[{g}].completions", "is empty; a group has at least one completion")
            )
        for c, completion in enumerate(group.completions):
            completion_id = completion.completion_id
            if completion_id and len(completion_id) <= MAX_ID_LENGTH and completion_id not in first_use:
                first_use[completion_id] = f"groups[{g}].completions[{c}]"
                continue
            path = f"groups[{g}].completions[{c}].completion_id"
            if not completion_id:
                wrong.append(FieldViolation(path, "is empty; results are joined by it"))
            elif len(completion_id) > MAX_ID_LENGTH:
                wrong.append(FieldViolation(path, f"is longer than {MAX_ID_LENGTH} characters"))
            else:
                wrong.append(
                    FieldViolation(path, f'"{completion_id}" is the id of {first_use[completion_id]} too')
                )
    for index, key in enumerate(batch.reward_keys):
        if key not in session_keys:
            known = ", ".join(session_keys)
            wrong.append(
                FieldViolation(
                    f"reward_keys[{index}]", f'"{key}" is no reward key of the session; there are {known}'
                )
            )
        elif key in batch.reward_keys[:index]:
            wrong.append(FieldViolation(f"reward_keys[{index}]", f'"{key}" is named twice'))
    return wrong


def _is_well_formed(batch: Batch) -> bool:
    """As nearly all batches are; told in a fraction of the time that finding the fault takes."""
    ids = [c.completion_id for group in batch.groups for c in group.completions]
    distinct = set(ids)
    return (
        0 < len(batch.batch_id) <= MAX_ID_LENGTH
        and len(batch.groups) > 0
        and all(group.completions for group in batch.groups)
        and len(distinct) == len(ids)
        and "" not in distinct
        and max(map(len, ids)) <= MAX_ID_LENGTH
    )


class InFlight:
    """Completions of a session that have not all their results on the way to the client."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Work:
    """A batch that was accepted: one outcome per (completion, reward key), each recorded once."""

    __slots__ = (
        "_accepted_at",
        "_completion_ids",
        "_handed",
        "_in_flight",
        "_keys",
        "_keys_to_hand",
        "_on_progress",
        "_outcomes",
        "_seconds",
        "_stop",
        "_timer",
        "batch_id",
        "failed_count",
        "fingerprint",
        "not_applicable_count",
        "open_count",
        "scored_count",
        "unhanded_completions",
    )

    def __init__(
        self,
        batch: Batch,
        keys: Sequence[str],
        in_flight: InFlight,
        on_progress: Callable[[Work, list[int]], None],
    ) -> None:
        """`on_progress` is told the indexes of new outcomes, and looks at `open_count` for the end."""
        self.batch_id = batch.batch_id
        self.fingerprint = batch.fingerprint
        self._keys = tuple(keys)
        self._completion_ids = [c.completion_id for group in batch.groups for c in group.completions]
        size = len(self._completion_ids) * len(self._keys)
        self._outcomes: list[Outcome | None] = [None] * size
        self._seconds = [0.0] * size
        self.open_count = size
        self.scored_count = 0
        self.not_applicable_count = 0
        self.failed_count = 0
        self._handed = bytearray(size)
        self._keys_to_hand = [len(self._keys)] * len(self._completion_ids)
        self.unhanded_completions = len(self._completion_ids)
        self._in_flight = in_flight
        in_flight.count += self.unhanded_completions
        self._on_progress = on_progress
        self._accepted_at = time.perf_counter()
        self._stop: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def result_count(self) -> int:
        """Results that the batch has when it is done."""
        return len(self._outcomes)

    def begin(self, scorer: Scorer, batch: Batch, timeout: float) -> None:
        """Starts scoring, for at most `timeout` seconds."""
        if timeout <= 0:
            self.close(FailureCode.TIMEOUT, f"the batch came with no time left: its timeout is {timeout:g} s")
            return
        if batch.timeout != timeout:
            batch = replace(batch, timeout=timeout)
        stop = scorer.start(batch, self._keys, self._record)
        if self.open_count:
            self._stop = stop
            message = f"not scored within the batch's timeout of {timeout:g} s"
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout, self.close, FailureCode.TIMEOUT, message)

    def close(self, code: FailureCode, message: str) -> None:
        """Stops what runs; what is open ends as a failure."""
        if not self.open_count:
            return
        stop = self._stop
        indexes = [index for index, outcome in enumerate(self._outcomes) if outcome is None]
        failures = [Failed(code, message)] * len(indexes)
        # First the failures: what still reports while it is stopped comes too late.
        self._record(indexes, failures, time.perf_counter() - self._accepted_at)
        if stop is not None:
            stop()

    def abandon(self) -> None:
        """Stops what runs, for nobody waits for it any more."""
        self._on_progress = _ignore
        self.close(FailureCode.CANCELLED, "abandoned")
        self.forget_unhanded()

    def forget_unhanded(self) -> None:
        """Nothing of the batch counts as in flight any more."""
        self._in_flight.count -= self.unhanded_completions
        self.unhanded_completions = 0
        self._handed = bytearray(b"\x01" * len(self._outcomes))

    def recorded(self) -> list[int]:
        """Indexes of the results that there are."""
        return [index for index, outcome in enumerate(self._outcomes) if outcome is not None]

    def hand_over(self, indexes: Sequence[int]) -> list[Results]:
        """The results at `indexes`, on their way to the client."""
        ids, seconds = self._completion_ids, self._seconds
        count, handed, left = len(ids), self._handed, self._keys_to_hand
        results: list[Results] = []
        last: tuple[int, float] | None = None
        completion_ids: list[str] = []
        outcomes: list[Outcome] = []
        for index in indexes:
            key, completion = divmod(index, count)
            alike = key, seconds[index]
            if alike != last:
                last = alike
                completion_ids, outcomes = [], []
                results.append(
                    Results(self.batch_id, self._keys[key], seconds[index], completion_ids, outcomes)
                )
            if not handed[index]:
                handed[index] = 1
                left[completion] -= 1
                if not left[completion]:
                    self.unhanded_completions -= 1
                    self._in_flight.count -= 1
            outcome = self._outcomes[index]
            assert outcome is not None
            completion_ids.append(ids[completion])
            outcomes.append(outcome)
        return results

    def _record(self, indexes: Sequence[int], outcomes: Sequence[Outcome], seconds: float) -> None:
        fresh: list[int] = []
        for index, outcome in zip(indexes, outcomes, strict=True):
            if self._outcomes[index] is not None:
                continue  # closed meanwhile
            self._outcomes[index] = outcome
            self._seconds[index] = seconds
            fresh.append(index)
            if isinstance(outcome, Scored):
                self.scored_count += 1
            elif isinstance(outcome, NotApplicable):
                self.not_applicable_count += 1
            else:
                self.failed_count += 1
        self.open_count -= len(fresh)
        if not self.open_count:
            self._stop = None
            if self._timer is not None:
                self._timer.cancel()
        if fresh:
            self._on_progress(self, fresh)


def _ignore(work: Work, indexes: list[int]) -> None:
    pass
