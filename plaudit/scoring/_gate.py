"""The gate through which the outcomes of a server pass: accepted once, or tried again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from plaudit.scoring._counters import CounterBook
from plaudit.scoring._outcomes import ScoredOutcome
from plaudit.scoring._retrying import Retries, final, may_help
from plaudit.scoring._standing import Standing
from plaudit.scoring._work import Moment, Submission, Unit
from plaudit.types.scoring import Failed, FailureCode, Outcome


class OutcomeGate:
    """Owes an outcome for each submission that entered, for each reward of the server that it asks for."""

    def __init__(
        self,
        server: str,
        keys: frozenset[str],
        book: CounterBook,
        on_complete: Callable[[], None],
        push: Callable[[list[Unit]], None],
        standing: Standing,
    ) -> None:
        """`on_complete` is called when a submission has all its outcomes, those of other servers included.

        `push` gets units whose time for another try has come. `standing` is told how replicas answer.
        """
        self.retries = Retries(push)
        self.last_progress = -math.inf
        """When a reward last came through, event loop time."""
        self.pause_reason: str | None = None
        """Why the job should pause, as an outcome said."""
        self.untaken = 0
        """Submissions that entered and were not let go."""
        self._server = server
        self._keys = keys
        self._book = book
        self._on_complete = on_complete
        self._standing = standing
        self._loop = asyncio.get_running_loop()
        self._open: dict[Submission, int] = {}
        """Answers that are still open, by submission, oldest first."""

    def __contains__(self, submission: Submission) -> bool:
        return submission in self._open

    def __iter__(self) -> Iterator[Submission]:
        """Submissions with open answers, oldest first."""
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, submission: Submission) -> bool:
        """Takes a submission in; False where it asks for none of the server's rewards."""
        terms = submission.terms
        count = len(self._keys if terms.wants_all else self._keys.intersection(terms.reward_names))
        if count:
            self._open[submission] = count
            self.untaken += 1
        return count > 0

    def let_go(self, submissions: Iterable[Submission]) -> None:
        """Nobody waits for these any more."""
        let_go = 0
        for submission in submissions:
            terms = submission.terms
            if terms.wants_all or not self._keys.isdisjoint(terms.reward_names):
                let_go += 1
                if self._open:
                    self._open.pop(submission, None)
        self.untaken -= let_go

    def may_help_to_retry(self, failure: Failed, unit: Unit, place: str) -> bool:
        """Whether another try can mend a failure of the replica at `place` ("": the only one)."""
        if may_help(failure):
            return True
        is_elsewhere = bool(place) and self._standing.has_other_than(unit.kind.failed_at | {place})
        return may_help(failure, elsewhere=is_elsewhere)

    def note(self, place: str, good: int, bad: int) -> None:
        """A replica answered: `good` are outcomes, `bad` failures that are its own."""
        self._standing.note(place, good, bad)

    def accept(self, submission: Submission, key: str, outcome: Outcome, since: float, at: Moment) -> None:
        """Accepts an outcome: the first one, and none after the taking."""
        if submission.taken or key in submission.outcomes:
            return
        if isinstance(outcome, Failed):
            outcome = replace(outcome, retry_delay=None)
            if outcome.code is FailureCode.EXHAUSTED and self.pause_reason is None:
                self.pause_reason = f'reward server "{self._server}", reward "{key}": {outcome.message}'
        else:
            self.last_progress = at.monotonic
        self._record(submission, key, ScoredOutcome(outcome, at.monotonic - since, at.wall))

    def accept_score(self, submission: Submission, key: str, score: ScoredOutcome, at: Moment) -> None:
        """As `accept`, of a score for a completion that is neither taken nor has an outcome of the reward."""
        self.last_progress = at.monotonic
        self._record(submission, key, score)

    def accept_scores(self, scores: Sequence[tuple[Submission, ScoredOutcome]], key: str, at: Moment) -> None:
        """As `accept_score`, of many of one reward."""
        self.last_progress = at.monotonic
        for submission, score in scores:
            self._record(submission, key, score)

    def settle(self, unit: Unit, at: Moment, place: str) -> None:
        """All answers of a unit are in: failures that another try can mend are tried again."""
        failures, unit.failures = unit.failures, None
        if unit.is_settled:
            return
        unit.is_settled = True
        if failures is None or unit.is_taken:
            return
        now = at.monotonic
        due_at = 0.0
        has_timed_out = False
        for (completion_id, key), failure in failures.items():
            delay = self.retries.delay(unit, failure, now)
            if delay is None:
                submission = unit.submission(completion_id)
                outcome = final(failure, unit.attempts + 1)
                self.accept(submission, key, outcome, unit.first_sent_at, at)
            else:
                due_at = max(due_at, now + delay)
                has_timed_out |= failure.code is FailureCode.TIMEOUT
        if due_at:
            self._book.server.retries += 1
            failed_at = unit.kind.failed_at | {place} if place else None
            retry = unit.again(self._loop.time(), failed_at=failed_at)
            retry.attempts += 1
            retry.timeouts += has_timed_out
            self.retries.put(retry, due_at)

    def fail(self, submission: Submission, failure: Failed, keys: Iterable[str] | None = None) -> None:
        """Fails the rewards `keys` of a submission; None: all that it asks for."""
        at = Moment.now()
        for key in self._keys.intersection(submission.terms.reward_names) if keys is None else keys:
            self.accept(submission, key, failure, submission.submitted_at, at)

    def _record(self, submission: Submission, key: str, outcome: ScoredOutcome) -> None:
        outcomes = submission.outcomes
        outcomes[key] = outcome
        left = self._open[submission] - 1
        if left:
            self._open[submission] = left
            return
        del self._open[submission]
        if len(outcomes) == len(submission.terms.reward_names):
            submission.is_complete = True
            self._on_complete()

    def fail_unit(self, unit: Unit, failure: Failed) -> None:
        """Fails what is open of a unit."""
        for submission in unit.submissions:
            self.fail(submission, failure, unit.kind.keys)
