"""Results are joined to the work by id, never by position; what does not fit is counted and left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import is_duration
from plaudit.scoring._compatibility import RewardRules
from plaudit.scoring._convert import MAX_EXPLANATION, failed, not_applicable, plain_score, scored
from plaudit.scoring._counters import CounterBook
from plaudit.scoring._outcomes import ScoredOutcome
from plaudit.scoring._outliers import BREAK_WEIGHT
from plaudit.scoring._retrying import OWN_FAILURES, final
from plaudit.scoring._work import AnswerId, Moment, SentBatch, Submission, Unit
from plaudit.types.scoring import Failed, FailureCode, Outcome, Scored


class OutcomeSink(Protocol):
    """Who acts on what was joined."""

    def accept(self, submission: Submission, key: str, outcome: Outcome, since: float, at: Moment) -> None:
        """Records the one accepted outcome of a reward for a completion that was sent first at `since`."""

    def accept_score(self, submission: Submission, key: str, score: ScoredOutcome, at: Moment) -> None:
        """As `accept`, of a score for a completion that is neither taken nor has an outcome of the reward."""

    def accept_scores(self, scores: Sequence[tuple[Submission, ScoredOutcome]], key: str, at: Moment) -> None:
        """As `accept_score`, of many of one reward."""

    def may_help_to_retry(self, failure: Failed, unit: Unit, place: str) -> bool:
        """Whether another try can mend a failure of the replica at `place` ("": the only one)."""

    def settle(self, unit: Unit, at: Moment, place: str) -> None:
        """Acts on a unit all of whose answers are in: its failures are retried or accepted."""

    def note(self, place: str, good: int, bad: int) -> None:
        """A replica answered: `good` are outcomes, `bad` failures that are its own."""


class ResultJoiner:
    """Joins the results of one replica's stream to its batches."""

    def __init__(
        self,
        sink: OutcomeSink,
        book: CounterBook,
        batches: Mapping[str, SentBatch],
        is_abandoned: Callable[[str], bool],
        place: str,
    ) -> None:
        """`place` is told with each failure: which replica it was, where there are several; "" else."""
        self._sink = sink
        self._book = book
        self._batches = batches
        self._is_abandoned = is_abandoned
        self._place = place
        self._told_place = f" (replica {place})" if place else ""
        self._good = self._bad = 0
        """Outcomes, and failures that are the replica's own, since the last note."""

    def join(self, results: pb.Results, rules: Mapping[str, RewardRules]) -> int:
        """Takes in a frame; returns how many completions of the window it freed."""
        at = Moment.now()
        freed = sum(self._join_plain(scores, rules, at) for scores in results.plain_scores)
        freed += self._join_each(results.results, rules, at)
        self._note()
        return freed

    def _join_plain(self, scores: pb.PlainScores, rules: Mapping[str, RewardRules], at: Moment) -> int:
        """Scores of one reward and batch; from the first one on that is not as nearly all are, as results."""
        batch_id, key = scores.batch_id, scores.reward_key
        completion_ids, values = scores.completion_ids, scores.values
        if len(completion_ids) != len(values):  # nobody knows which value is whose
            nothing = [pb.Result(batch_id=batch_id, completion_id=i, reward_key=key) for i in completion_ids]
            return self._join_each(nothing, rules, at)
        batch, rule = self._batches.get(batch_id), rules.get(key)
        waiting: dict[AnswerId, Unit] = {} if batch is None or rule is None else batch.waiting
        low, high = (math.inf, -math.inf) if rule is None else (rule.low, rule.high)
        now, wall = at
        freed = 0
        joined: list[tuple[Submission, ScoredOutcome]] = []
        others: list[pb.Result] = []
        pairs = zip(completion_ids, values, strict=True)
        for completion_id, value in pairs:
            answer = (completion_id, key)
            unit = waiting.get(answer)
            if (
                unit is None
                or not low <= value <= high
                or unit.completions > 1
                or unit.failures is not None
                or (submission := unit.first).taken
                or key in submission.outcomes
            ):
                others = [
                    pb.Result(batch_id=batch_id, completion_id=i, reward_key=key, score=pb.Score(value=v))
                    for i, v in itertools.chain([(completion_id, value)], pairs)
                ]
                break
            del waiting[answer]
            joined.append((submission, ScoredOutcome(plain_score(value), now - unit.first_sent_at, wall)))
            unit.open_answers -= 1
            if not unit.open_answers:
                unit.is_settled = True
                freed += 1
        if batch is not None and joined:
            batch.open_completions -= freed
            self._good += len(joined)
            self._sink.accept_scores(joined, key, at)
        return freed + self._join_each(others, rules, at)

    def _join_each(self, results: Iterable[pb.Result], rules: Mapping[str, RewardRules], at: Moment) -> int:
        """This runs once for every answer of many a run: what is rare is left to the methods below."""
        freed = good = 0
        now, wall = at
        accept_score = self._sink.accept_score
        batch: SentBatch | None = None
        for result in results:
            batch_id = result.batch_id
            if batch is None or batch.batch_id != batch_id:
                batch = self._batches.get(batch_id)
                if batch is None:
                    self._count_stray(batch_id, result.reward_key)
                    continue
            key = result.reward_key
            answer = (result.completion_id, key)
            unit = batch.waiting.pop(answer, None)
            if unit is None:
                self._repeated(batch, answer, result)
                continue
            rule = rules[key]
            # NaN is in no range.
            if result.HasField("score") and rule.low <= (value := (score := result.score).value) <= rule.high:
                outcome: Outcome = scored(score) if score.explanation or score.metrics else plain_score(value)
            else:
                other = self._other_outcome(result, rule)
                if isinstance(other, str):
                    # A valid answer may still come; at the batch's end this says what was wrong.
                    batch.waiting[answer] = unit
                    batch.invalid[answer] = other
                    continue
                outcome = other
            submission = unit.first if unit.completions == 1 else unit.submission(answer[0])
            if submission.taken:
                self._book.at(key).late += 1
            elif key in submission.outcomes:  # a replay after a break, or the rest of a group sent again
                if rule.is_deterministic and _differ(submission.outcomes[key].outcome, outcome):
                    self._book.at(key).differing += 1
            elif isinstance(outcome, Scored):
                good += 1
                scored_outcome = ScoredOutcome(outcome, now - unit.first_sent_at, wall)
                accept_score(submission, key, scored_outcome, at)
            else:
                self._take_in(unit, submission, key, outcome, at)
            unit.open_answers -= 1
            if not unit.open_answers:
                freed += unit.completions
                batch.open_completions -= unit.completions
                if unit.failures is None:
                    unit.is_settled = True
                else:
                    self._sink.settle(unit, at, self._place)
        self._good += good
        return freed

    def note_break(self) -> None:
        """The stream broke with work open."""
        self._bad += BREAK_WEIGHT
        self._note()

    def end(self, batch: SentBatch, missing: Failed) -> None:
        """Ends a batch that gets no more answers: `missing` is what became of those that did not come."""
        if not batch.waiting:
            return
        at = Moment.now()
        waiting, batch.waiting = batch.waiting, {}
        for answer, unit in waiting.items():
            reason = batch.invalid.get(answer)
            outcome = missing if reason is None else Failed(FailureCode.INTERNAL, reason)
            self._take_in(unit, unit.submission(answer[0]), answer[1], outcome, at)
            unit.open_answers = 0
        if missing.code is FailureCode.CANCELLED:  # by this side, and no fault of the replica
            self._bad = 0
        # First this: what is tried again is to go to another replica.
        self._note()
        for unit in dict.fromkeys(waiting.values()):
            self._sink.settle(unit, at, self._place)

    def _take_in(self, unit: Unit, submission: Submission, key: str, outcome: Outcome, at: Moment) -> None:
        if isinstance(outcome, Failed):
            self._bad += outcome.code in OWN_FAILURES
            if self._told_place:
                message = outcome.message[: MAX_EXPLANATION - len(self._told_place)] + self._told_place
                outcome = replace(outcome, message=message)
            if self._sink.may_help_to_retry(outcome, unit, self._place):
                if unit.failures is None:
                    unit.failures = {}
                unit.failures[submission.completion_id, key] = outcome
                return
            outcome = final(outcome, unit.attempts + 1)
        else:
            self._good += 1
        self._sink.accept(submission, key, outcome, unit.first_sent_at, at)

    def _note(self) -> None:
        good, bad = self._good, self._bad
        self._good = self._bad = 0
        if self._place and (good or bad):
            self._sink.note(self._place, good, bad)

    def _other_outcome(self, result: pb.Result, rule: RewardRules) -> Outcome | str:
        """An outcome other than a score in range, or what is wrong with it."""
        kind = result.WhichOneof("outcome")
        if kind == "not_applicable":
            return not_applicable(result.not_applicable)
        counters = self._book.at(result.reward_key)
        if kind == "failure":
            counters.mistimed += not is_duration(result.failure.retry_delay)
            return failed(result.failure)
        if kind is None:
            counters.empty += 1
            return "the reward server sent a result without an outcome, or uneven plain_scores"
        value = result.score.value
        if not math.isfinite(value):
            counters.non_finite += 1
            return f"the reward server answered {value}, which is no number"
        counters.out_of_range += 1
        allowed = f"{rule.low:g} to {rule.high:g}"
        return f"the reward server answered {value:g}, outside the reward's range of {allowed}"

    def _count_stray(self, batch_id: str, key: str) -> None:
        if self._is_abandoned(batch_id):
            self._book.at(key).late += 1
        else:
            self._book.server.unknown += 1

    def _repeated(self, batch: SentBatch, answer: AnswerId, result: pb.Result) -> None:
        completion_id, key = answer
        submission = batch.submission(completion_id)
        if submission is None or key not in batch.kind.keys:
            self._book.at(key).unknown += 1
            return
        counters = self._book.at(key)
        counters.doubled += 1
        accepted = submission.outcomes.get(key)
        if accepted is None or not result.HasField("score"):
            return
        if _differ(accepted.outcome, Scored(result.score.value)):
            counters.differing += 1


def _differ(accepted: Outcome, repeated: Outcome) -> bool:
    return isinstance(accepted, Scored) and isinstance(repeated, Scored) and accepted.value != repeated.value
