"""What was asked on one stream, what came of it, and everything that is wrong with that.

Memory is bounded by what was sent: of findings a few examples are kept, and a server that sends far more
than it was asked for is a flood, after which nothing is read any more.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import LONGEST_DURATION_SECONDS, is_duration
from reward_service.conformance._faults import Fault
from reward_service.conformance._work import ids_of

LARGEST_VALUE: Final = 1_000_000.0
LONGEST_TEXT_BYTES: Final = 4096

_EXAMPLES: Final = 3
_SHOWN_CHARACTERS: Final = 120
_FREE_FRAMES: Final = 512
_FRAMES_PER_RESULT: Final = 4


class Outcome(NamedTuple):
    """A result: "score", "not_applicable", "failure" or "nothing"; the value, or the failure's code word."""

    kind: str
    value: float = math.nan
    code: str = ""
    message: str = ""


class Range(NamedTuple):
    """Bounds of a reward, inclusive."""

    low: float = -LARGEST_VALUE
    high: float = LARGEST_VALUE


@dataclass(slots=True)
class Entry:
    """A batch that was sent, or that the server said it still held."""

    completion_ids: dict[str, None]
    keys: Sequence[str]
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    completions_left: Counter[str] = field(default_factory=Counter)
    flying: bool = False
    done: pb.BatchDone | None = None
    rejected: pb.Failure | None = None

    @property
    def size(self) -> int:
        """Results that are due."""
        return len(self.completion_ids) * len(self.keys)

    @property
    def open_completions(self) -> int:
        """Completions that have not all their results."""
        return sum(left > 0 for left in self.completions_left.values())

    @property
    def settled(self) -> bool:
        """Whether the server has said its last word about it."""
        return self.done is not None or self.rejected is not None


class Ledger:
    """The bookkeeping of one stream."""

    def __init__(self, ranges: dict[str, Range], *, reads_bundles: bool = False) -> None:
        """`ranges` are the bounds of each key's reward. `reads_bundles`: `open` allows `done` and plain
        scores among results.
        """
        self.reads_bundles = reads_bundles
        self.entries: dict[str, Entry] = {}
        self.opened: pb.SessionOpened | None = None
        self.draining = False
        self.window = 0
        self.in_flight = 0
        self.frames = 0
        self.result_frames = 0
        self.result_count = 0
        self.due = 0
        self._ranges = ranges
        self._counts: Counter[Fault] = Counter()
        self._examples: dict[Fault, list[str]] = {}

    @property
    def faults(self) -> frozenset[Fault]:
        """What is wrong so far."""
        return frozenset(self._counts)

    def told(self, fault: Fault) -> str:
        """Examples of a fault, and how often it was found."""
        examples, count = self._examples[fault], self._counts[fault]
        more = f"; and {count - len(examples)} more like it" if count > len(examples) else ""
        return "; ".join(examples) + more

    def note(self, fault: Fault, example: str) -> None:
        """Something is wrong."""
        self._counts[fault] += 1
        examples = self._examples.setdefault(fault, [])
        if len(examples) < _EXAMPLES:
            examples.append(example)

    def sent(self, batch: pb.Batch, session_keys: Sequence[str]) -> Entry:
        """A batch is on its way; one that was sent before is not asked for again."""
        entry = self.expect(batch, session_keys)
        self.fly(batch.batch_id)
        return entry

    def expect(self, batch: pb.Batch, session_keys: Sequence[str]) -> Entry:
        """Results of a batch may come, though it was not sent on this stream."""
        entry = self.entries.get(batch.batch_id)
        if entry is None:
            keys = tuple(batch.reward_keys) or tuple(session_keys)
            entry = self.entries[batch.batch_id] = Entry(dict.fromkeys(ids_of(batch)), keys)
            entry.completions_left = Counter(dict.fromkeys(entry.completion_ids, len(keys)))
            self.due += entry.size
        return entry

    def has_room(self, count: int) -> bool:
        """Whether so many completions may be sent."""
        return self.in_flight <= 0 or self.in_flight + count <= self.window

    def fly(self, batch_id: str) -> None:
        """The completions of a batch that have not all their results count for the window."""
        entry = self.entries[batch_id]
        if not (entry.flying or entry.settled):
            entry.flying = True
            self.in_flight += entry.open_completions

    def take(self, raw: bytes) -> pb.ScoreResponse | None:
        """A frame came. None where it cannot be read."""
        self.frames += 1
        most = _FREE_FRAMES + _FRAMES_PER_RESULT * self.due
        if self.frames > most or self.result_count > most:
            self.note(Fault.FLOOD, f"{self.frames} frames came where {self.due} results were due")
            return None
        try:
            frame = pb.ScoreResponse.FromString(raw)
        except DecodeError as error:
            self.note(
                Fault.UNREADABLE, f"frame {self.frames}, {len(raw)} bytes, is no ScoreResponse: {error}"
            )
            return None
        case = frame.WhichOneof("frame")
        if self.opened is None and case not in (None, "opened"):
            self.note(Fault.BEFORE_OPENED, f"the first frame is {case}, and not opened")
        match case:
            case "opened":
                if self.opened is not None:
                    self.note(Fault.OPENED_AGAIN, f"frame {self.frames} is opened, which had come before")
                else:
                    self.opened = frame.opened
                    self.window = frame.opened.max_in_flight_completions
            case "results":
                self.result_frames += 1
                self._take_results(frame.results)
            case "done":
                self._take_done(frame.done)
            case "rejected":
                self._take_rejected(frame.rejected)
            case "window":
                self.window = frame.window.max_in_flight_completions
            case "draining":
                self.draining = True
                self._check_duration(frame.draining.grace, "draining: grace")
        return frame

    def close(self) -> None:
        """Nothing more comes: what is missing is missing, unless it was we who stopped to read."""
        if Fault.FLOOD in self._counts:
            return
        for batch_id, entry in self.entries.items():
            if entry.rejected is not None:
                continue
            missing = entry.size - len(entry.outcomes)
            done = entry.done
            if missing:
                completion_id, key = next(pair for pair in _pairs(entry) if pair not in entry.outcomes)
                what = "" if done is not None else ", and no done"
                self.note(
                    Fault.MISSING,
                    f"batch {short(batch_id)}: {missing} of {entry.size} results did not come{what}; the "
                    f"first is (completion {shown(completion_id)}, key {shown(key)})",
                )
            elif done is None:
                self.note(
                    Fault.NO_DONE,
                    f"batch {short(batch_id)}: all {entry.size} results came, and no done after them",
                )
            if done is not None:
                self._check_counts(batch_id, entry, done, missing)

    def _take_results(self, results: pb.Results) -> None:
        if not results.results and not results.plain_scores:
            self.note(Fault.EMPTY_RESULTS, f"frame {self.frames} is results with none in it")
        for result in results.results:
            self._take_result(result)
        if results.plain_scores and not self.reads_bundles:
            self.note(
                Fault.UNASKED, f"frame {self.frames} has plain_scores, and reads_plain_scores was not set"
            )
        for scores in results.plain_scores:
            self._take_plain(scores)
        if results.done and not self.reads_bundles:
            self.note(
                Fault.UNASKED,
                f"frame {self.frames} has done among its results, and reads_bundled_done was not set",
            )
        for done in results.done:
            self._take_done(done)

    def _take_plain(self, scores: pb.PlainScores) -> None:
        where = f"plain_scores of batch {short(scores.batch_id)}, key {shown(scores.reward_key)}"
        self._check_duration(scores.scoring_duration, f"{where}: scoring_duration")
        counts = (len(scores.completion_ids), len(scores.values))
        if counts[0] != counts[1]:
            self.note(Fault.UNEVEN, f"{where}: {counts[0]} completion_ids and {counts[1]} values")
        for completion_id, value in zip(scores.completion_ids, scores.values, strict=False):
            self._take_result(
                pb.Result(
                    batch_id=scores.batch_id,
                    completion_id=completion_id,
                    reward_key=scores.reward_key,
                    score=pb.Score(value=value),
                )
            )

    def _take_result(self, result: pb.Result) -> None:
        self.result_count += 1
        batch_id, completion_id, key = result.batch_id, result.completion_id, result.reward_key
        entry = self.entries.get(batch_id)
        where = f"batch {short(batch_id)}, completion {shown(completion_id)}, key {shown(key)}"
        if entry is None:
            self.note(Fault.UNKNOWN_ID, f"a result for {where}: no such batch was sent on this stream")
            return
        if entry.rejected is not None:
            self.note(Fault.ANSWERED_REJECTED, f"a result for {where}, after the batch was rejected")
        elif entry.done is not None:
            self.note(Fault.AFTER_DONE, f"a result for {where}, after the batch was done")
        if completion_id not in entry.completion_ids:
            self.note(Fault.UNKNOWN_ID, f"a result for {where}: the batch has no such completion")
            return
        if key not in entry.keys:
            self.note(
                Fault.UNKNOWN_ID,
                f"a result for {where}: asked for were the keys {', '.join(map(shown, entry.keys))}",
            )
            return
        outcome = self._outcome_of(result, where)
        first = entry.outcomes.setdefault((completion_id, key), outcome)
        if first is not outcome:
            self.note(Fault.DOUBLED, f"a second result for {where}: {told(first)}, then {told(outcome)}")
            return
        entry.completions_left[completion_id] -= 1
        if entry.flying and not entry.completions_left[completion_id]:
            self.in_flight -= 1

    def _outcome_of(self, result: pb.Result, where: str) -> Outcome:
        self._check_duration(result.scoring_duration, f"{where}: scoring_duration")
        match result.WhichOneof("outcome"):
            case "score":
                value = result.score.value
                low, high = self._ranges.get(result.reward_key, Range())
                if not math.isfinite(value):
                    self.note(Fault.NOT_A_VALUE, f"{where}: the score is {value}, which is not finite")
                elif abs(value) > LARGEST_VALUE:
                    self.note(
                        Fault.NOT_A_VALUE, f"{where}: the score {value:g} is beyond ±{LARGEST_VALUE:,.0f}"
                    )
                elif not low <= value <= high:
                    self.note(
                        Fault.NOT_A_VALUE,
                        f"{where}: the score {value:g} is outside of the declared range {low:g} to {high:g}",
                    )
                for name, part in result.score.metrics.items():
                    if not math.isfinite(part):
                        self.note(Fault.BAD_METRIC, f"{where}: metric {shown(name)} is {part}")
                self._check_text(result.score.explanation, f"{where}: explanation")
                return Outcome("score", value)
            case "not_applicable":
                self._check_text(result.not_applicable.reason, f"{where}: reason")
                return Outcome("not_applicable")
            case "failure":
                failure = result.failure
                self._check_text(failure.message, f"{where}: message")
                self._check_duration(failure.retry_delay, f"{where}: retry_delay")
                return Outcome("failure", math.nan, code_word(failure.code), failure.message[:500])
        self.note(Fault.NO_OUTCOME, f"{where}: neither score nor not_applicable nor failure is set")
        return Outcome("nothing")

    def _check_text(self, text: str, where: str) -> None:
        if len(text) * 4 > LONGEST_TEXT_BYTES and (size := len(text.encode())) > LONGEST_TEXT_BYTES:
            self.note(Fault.LONG_TEXT, f"{where} has {size} bytes; {LONGEST_TEXT_BYTES} are allowed")

    def _check_duration(self, told: Duration, where: str) -> None:
        if not is_duration(told):
            self.note(
                Fault.NOT_A_DURATION,
                f"{where} is {told.seconds} s and {told.nanos} ns; it is 0 to {LONGEST_DURATION_SECONDS:,} s",
            )

    def _take_done(self, done: pb.BatchDone) -> None:
        entry = self.entries.get(done.batch_id)
        if entry is None:
            self.note(
                Fault.UNKNOWN_ID,
                f"done for batch {short(done.batch_id)}: no such batch was sent on this stream",
            )
        elif entry.rejected is not None:
            self.note(
                Fault.ANSWERED_REJECTED, f"done for batch {short(done.batch_id)}, after it was rejected"
            )
        elif entry.done is not None:
            self.note(Fault.DONE_TWICE, f"done for batch {short(done.batch_id)} came twice")
        else:
            self._land(entry)
            entry.done = done

    def _take_rejected(self, rejected: pb.BatchRejected) -> None:
        entry = self.entries.get(rejected.batch_id)
        if entry is None:
            self.note(
                Fault.UNKNOWN_ID,
                f"rejected for batch {short(rejected.batch_id)}: no such batch was sent on this stream",
            )
            return
        failure = rejected.failure
        self._check_duration(failure.retry_delay, f"rejected {short(rejected.batch_id)}: retry_delay")
        self.note(
            Fault.REJECTED,
            f"batch {short(rejected.batch_id)} was rejected: {code_word(failure.code)} "
            f"{shown(failure.message)}",
        )
        if entry.outcomes:
            self.note(
                Fault.ANSWERED_REJECTED,
                f"batch {short(rejected.batch_id)} was rejected after {len(entry.outcomes)} results of it",
            )
        self._land(entry)
        entry.rejected = failure

    def _land(self, entry: Entry) -> None:
        if entry.flying:
            entry.flying = False
            self.in_flight -= entry.open_completions

    def _check_counts(self, batch_id: str, entry: Entry, done: pb.BatchDone, missing: int) -> None:
        counts = (done.scored_count, done.not_applicable_count, done.failed_count)
        said = (
            f"batch {short(batch_id)}: done says {counts[0]} scored, {counts[1]} not applicable, {counts[2]} "
            "failed"
        )
        if sum(counts) != entry.size:
            self.note(
                Fault.DONE_COUNTS,
                f"{said}, which is {sum(counts)}; {len(entry.completion_ids)} completions times "
                f"{len(entry.keys)} rewards are {entry.size}",
            )
            return
        kinds = Counter(outcome.kind for outcome in entry.outcomes.values())
        came = (kinds["score"], kinds["not_applicable"], kinds["failure"])
        if not missing and not kinds["nothing"] and counts != came:
            self.note(
                Fault.DONE_COUNTS,
                f"{said}; what came was {came[0]} scored, {came[1]} not applicable, {came[2]} failed",
            )


def _pairs(entry: Entry) -> Iterable[tuple[str, str]]:
    return ((completion_id, key) for completion_id in entry.completion_ids for key in entry.keys)


def code_word(code: pb.Failure.Code.ValueType) -> str:
    """A failure's code as people write it."""
    return {number: word for word, number in pb.Failure.Code.items()}.get(code, f"code {code}")


def told(outcome: Outcome) -> str:
    """An outcome in words."""
    if outcome.kind == "score":
        return f"score {outcome.value:g}"
    if outcome.kind == "failure":
        return f"{outcome.code} {shown(outcome.message)}"
    return outcome.kind.replace("_", " ")


def short(batch_id: str) -> str:
    """A batch id as reports show it: the beginning tells them apart."""
    return shown(batch_id, 8)


def shown(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Somebody else's text in quotes, without control characters, cut where it is long."""
    return json.dumps(text) if len(text) <= most else f"{json.dumps(text[:most])}…"
