"""A reward server of a run: takes in completions, and sees that each gets one outcome per reward."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID, uuid5

import structlog

from plaudit.errors import PermissionDeniedError, PlauditError, UnauthenticatedError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring._compatibility import (
    PROTOCOL_VERSION,
    ServerDescription,
    UselessError,
    describe,
    useless,
)
from plaudit.scoring._connection import RefusedError
from plaudit.scoring._convert import selection_message
from plaudit.scoring._counters import ProtocolCounters
from plaudit.scoring._dealing import Dealer
from plaudit.scoring._limits import ScoringLimits
from plaudit.scoring._outcomes import ScoredOutcome
from plaudit.scoring._replica import Replica
from plaudit.scoring._retrying import Retries, final, may_help
from plaudit.scoring._routing import Router
from plaudit.scoring._work import BREAKS_TOLERATED, Moment, SentBatch, Submission, Unit
from plaudit.types.jobs import RewardBinding
from plaudit.types.scoring import Failed, FailureCode, Outcome

log = structlog.get_logger(__name__)

SESSION_NAMESPACE: Final = UUID("9c3c0a4e-6f57-5d0b-8f5d-0b7d0f6a4c11")
"""Of session ids: UUID5 of scope, server, place and address, so that they are the same on every reconnect."""

TOLD_AFTER_SECONDS: Final = 2.0
"""Shorter waits are part of every step, and not worth telling."""

_SUSPECT_PARTS: Final = 8
"""64 completions become 8 batches of 8, then 8 of 1: few more breaks, and few batches in single file."""

_SPLIT: Final = frozenset({FailureCode.INVALID, FailureCode.LIMIT_EXCEEDED})
"""A batch refused so may be refused for one of its completions: each is then sent by itself."""


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """What a run asks of one server."""

    name: str
    addresses: tuple[str, ...]
    bindings: tuple[RewardBinding, ...]
    positions: tuple[int, ...]
    """Places of the bindings among the job's rewards."""
    session_scope: str
    job_id: str
    model: str


class RewardServer:
    """Scores with the rewards of one server. Made and used in one event loop."""

    def __init__(
        self,
        setup: ServerSetup,
        limits: ScoringLimits,
        on_complete: Callable[[Submission], None],
        on_state: Callable[[], None],
    ) -> None:
        """`on_complete` gets each submission that has all its outcomes, those of other servers included.

        `on_state` is called when the first session is open, and when no replica will ever do.
        """
        self.name = setup.name
        self.counters = ProtocolCounters()
        self.versions: dict[str, str] = {}
        """By address."""
        self.was_ready = False
        """Whether a session was open once."""
        self.error: PlauditError | None = None
        """Why no replica will ever do."""
        self.pause_reason: str | None = None
        self._setup = setup
        self._keys = frozenset(binding.name for binding in setup.bindings)
        self._limits = limits
        self._on_complete = on_complete
        self._on_state = on_state
        self._loop = asyncio.get_running_loop()
        self._router = Router(setup.bindings)
        self._unrouted: list[Submission] = []
        self._open: dict[Submission, int] = {}
        """Answers that are still open, by submission, oldest first."""
        self._untaken = 0
        self._apart = itertools.count(1)
        self._last_progress = -math.inf
        self._down_since: float | None = self._loop.time()
        self._retries = Retries(limits, self._push)
        self._replicas: list[Replica] = []
        self._dealer = Dealer(self._replicas, self._keys, limits, self._refuse)
        for address in dict.fromkeys(setup.addresses):
            scope = "/".join((setup.session_scope, setup.name, *setup.addresses, address))
            session_id = str(uuid5(SESSION_NAMESPACE, scope))
            self._replicas.append(Replica(address, session_id, self, limits, self.counters))

    # Work in.

    def add(self, submissions: Iterable[Submission]) -> None:
        """Takes in completions, each for those of its rewards that are this server's."""
        now = self._loop.time()
        for submission in submissions:
            if submission.wants_all:
                count = len(self._keys)
            else:
                count = len(self._keys.intersection(submission.reward_names))
            if not count:
                continue
            self._open[submission] = count
            self._untaken += 1
            if self.error is not None:
                self._fail_all(submission, self._dead())
            elif not self._router.knows_lanes:
                self._unrouted.append(submission)
            else:
                for unit in self._router.route(submission, now):
                    self._dealer.ready.push(unit)
        self._dealer.deal()

    def expect(self, submissions: Sequence[Submission]) -> None:
        """Somebody waits for these now: nothing waits for company any more."""
        whole_by = self._loop.time() + self._limits.retry_budget_seconds
        for submission in submissions:
            submission.whole_by = min(submission.whole_by, whole_by)
        self._dealer.deal(flush=True)

    def release(self, submissions: Iterable[Submission]) -> None:
        """Lets go of submissions that were taken; batches that nobody waits for any more are cancelled."""
        for submission in submissions:
            if not self._keys.isdisjoint(submission.reward_names):
                self._untaken -= 1
                self._open.pop(submission, None)
        self._unrouted = [s for s in self._unrouted if not s.taken]
        self._router.drop_taken()
        for replica in self._replicas:
            for batch in list(replica.batches.values()):
                if batch.waiting and all(unit.is_taken for unit in batch.units if unit.open_answers):
                    replica.give_up(batch, Failed(FailureCode.CANCELLED, "nobody waits for it any more"))
        self._dealer.deal()

    def sweep(self) -> None:
        """Gives up what is past its budget, and streams that answer nothing."""
        now = self._loop.time()
        for submission in self._unrouted:
            if self._expires_at(submission.submitted_at) <= now:
                self._fail_all(submission, self._past_budget())
        self._unrouted = [s for s in self._unrouted if s in self._open]
        for submission, keys in self._router.expired(now):
            missing = Failed(
                FailureCode.INVALID, f"its group of {submission.group_size} completions never became whole"
            )
            self._fail(submission, keys, missing)

        def is_expired(unit: Unit) -> bool:
            if unit.was_sent:
                return unit.first_sent_at + self._limits.retry_budget_seconds <= now
            return self._expires_at(unit.ready_at) <= now

        expired = self._dealer.ready.remove_where(is_expired) + self._retries.remove_where(is_expired)
        for replica in self._replicas:
            for batch in replica.unsent:
                if all(is_expired(unit) for unit in batch.units):
                    replica.withdraw(batch)
                    expired.extend(unit for unit in batch.units if not unit.is_settled)
            if self._dealer.ready:
                replica.break_off_if_silent()
        for unit in expired:
            self._fail_unit(unit, self._past_budget())

    async def close(self, timeout: float) -> None:
        """Cancels what is open and ends the sessions."""
        for replica in self._replicas:
            for batch in list(replica.batches.values()):
                replica.give_up(batch, Failed(FailureCode.CANCELLED, "the scorer was closed"))
        self._dealer.close()
        await asyncio.gather(*(replica.close(timeout) for replica in self._replicas))
        self._retries.close()

    def waiting_detail(self) -> str:
        """What is waited for, for people; empty where nothing is, or not for long."""
        now = self._loop.time()
        place = f"reward server {_quoted(self.name)} ({', '.join(r.address for r in self._replicas)})"
        oldest = next(iter(self._open), None)
        if self.error is not None or (self.was_ready and oldest is None):
            return ""
        outstanding = f"{len(self._open)} of {self._untaken} completions outstanding"
        if self._down_since is not None:
            seconds = now - self._down_since
            if seconds < TOLD_AFTER_SECONDS:
                return ""
            reason = next(r.lost_reason for r in self._replicas if not r.is_useless)
            again = "come back" if self.was_ready else "come up"
            rest = f"; {outstanding}" if oldest is not None else ""
            return f"waiting for {place} to {again} ({reason}) for {seconds:.0f} s{rest}"
        if oldest is None or now - oldest.submitted_at < TOLD_AFTER_SECONDS:
            return ""
        return f"{place}: {outstanding} for {now - oldest.submitted_at:.0f} s"

    # What replicas report (`ReplicaOwner`).

    def describe(self, info: pb.GetServerInfoResponse) -> ServerDescription:
        """Reads a description; raises UselessError where the job cannot use the replica."""
        description = describe(info, self.name, self._setup.bindings)
        if self._router.knows_lanes:
            self._router.check_scopes(description.rules, self.name)
        return description

    def refusal(self, refused: RefusedError) -> UselessError:
        """What a useless status means for the user."""
        return useless(refused.failure, self.name, self._setup.bindings, self._setup.positions)

    def open_frame(self, session_id: str, pending_batch_ids: Sequence[str]) -> pb.ScoreRequest:
        """The first frame of a stream."""
        return pb.ScoreRequest(
            open=pb.SessionOpen(
                session_id=session_id,
                protocol_version=PROTOCOL_VERSION,
                rewards=[selection_message(binding) for binding in self._setup.bindings],
                pending_batch_ids=pending_batch_ids,
                job_id=self._setup.job_id,
                model=self._setup.model,
            )
        )

    def on_open(self, replica: Replica) -> None:
        """Work may flow: what a broken session left is judged, and what others left comes here."""
        assert replica.description is not None
        self._note_version(replica.address, replica.description.version)
        self._dealer.learn_limits()
        if not self.was_ready:
            self.was_ready = True
            self._on_state()
        self._down_since = None
        if not self._router.knows_lanes:
            self._router.learn(replica.description.rules)
            unrouted, self._unrouted = self._unrouted, []
            now = self._loop.time()
            for submission in unrouted:
                for unit in self._router.route(submission, now):
                    self._dealer.ready.push(unit)
        for batch in replica.unsent:
            if batch.must_be_alone or not self._dealer.fits(batch):
                replica.withdraw(batch)
                self._send_anew(batch)
        self._rescue()
        self._dealer.deal()

    def on_room(self) -> None:
        """A replica may have room for more work."""
        self._dealer.deal()

    def on_lost(self, replica: Replica) -> None:
        """A connection ended, or was not made."""
        if self._down_since is None and not any(r.is_open for r in self._replicas):
            self._down_since = self._loop.time()
        self._rescue()
        self._dealer.deal()

    def on_useless(self, replica: Replica, error: UselessError) -> None:
        """The replica will never do; where it was the last one, all work fails with the reason."""
        self._rescue()
        if not all(r.is_useless for r in self._replicas):
            self._dealer.deal()
            return
        self.error = error.error
        self.pause_reason = self.pause_reason or error.error.message
        for submission in list(self._open):
            self._fail_all(submission, self._dead())
        self._on_state()

    def on_rejected(self, batch: SentBatch, failure: Failed) -> Failed | None:
        """What the answers of a refused batch become; None where its completions are sent again apart."""
        if failure.code in _SPLIT and len(batch.units) > 1:
            self._send_anew(batch, parts=len(batch.units))
            return None
        if failure.code in (FailureCode.LIMIT_EXCEEDED, FailureCode.CONFLICT):
            # The window may have shrunk on the way; a new batch has a new id.
            return replace(failure, retry_delay=failure.retry_delay or 0.0)
        return failure

    def may_help_to_retry(self, failure: Failed) -> bool:
        """Whether a failure is of a kind that another try can mend."""
        return may_help(failure)

    def accept(self, submission: Submission, key: str, outcome: Outcome, since: float, at: Moment) -> None:
        """The one gate through which an outcome is accepted: the first one, and none after the taking."""
        if submission.taken or key in submission.outcomes:
            return
        if isinstance(outcome, Failed):
            outcome = replace(outcome, retry_delay=None)
            if outcome.code is FailureCode.EXHAUSTED and self.pause_reason is None:
                place = f"reward server {_quoted(self.name)}, reward {_quoted(key)}"
                self.pause_reason = f"{place}: {outcome.message}"
        else:
            self._last_progress = at.monotonic
        submission.outcomes[key] = ScoredOutcome(outcome, at.monotonic - since, at.wall)
        left = self._open[submission] - 1
        if left:
            self._open[submission] = left
            return
        del self._open[submission]
        if len(submission.outcomes) == len(submission.reward_names):
            submission.is_complete = True
            self._on_complete(submission)

    def settle(self, unit: Unit, at: Moment) -> None:
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
            delay = self._retries.delay(unit, failure, now)
            if delay is None:
                submission = unit.submission(completion_id)
                outcome = final(failure, unit.attempts + 1)
                self.accept(submission, key, outcome, unit.first_sent_at, at)
            else:
                due_at = max(due_at, now + delay)
                has_timed_out |= failure.code is FailureCode.TIMEOUT
        if due_at:
            self.counters.retries += 1
            retry = self._again(unit)
            retry.attempts += 1
            retry.timeouts += has_timed_out
            self._retries.put(retry, due_at)

    # Within.

    def _rescue(self) -> None:
        """Moves what broken sessions left to replicas that are there.

        A server that retains results gets one reconnect in which to hand them over: nothing is then repeated.
        """
        if not any(r.takes_work for r in self._replicas):
            return
        for replica in self._replicas:
            description = replica.description
            retains = description is not None and description.retains_results
            if not replica.is_open and (replica.failed_connects or replica.is_useless or not retains):
                for batch in replica.unsent:
                    replica.withdraw(batch)
                    self._send_anew(batch)

    def _send_anew(self, batch: SentBatch, *, parts: int = 1) -> None:
        """Sends what is open of a batch in new batches, in so many parts, each by itself if more than one.

        A batch that may have broken the connection is taken apart until the completion that does it is alone.
        """
        units = [unit for unit in batch.units if not unit.is_settled and not unit.is_taken]
        if batch.breaks > BREAKS_TOLERATED and len(units) == 1:
            self._fail_unit(
                units[0],
                Failed(
                    FailureCode.INTERNAL,
                    f"the connection to the reward server broke {batch.breaks} times while it had this, the "
                    "last time with nothing else; the server's log may say why",
                ),
            )
            return
        if batch.must_be_alone:
            parts = _SUSPECT_PARTS
        size = max(1, math.ceil(len(units) / parts))
        for start in range(0, len(units), size):
            apart = next(self._apart) if parts > 1 else 0
            for unit in units[start : start + size]:
                again = self._again(unit, apart)
                again.breaks = batch.breaks
                self._dealer.ready.push(again)

    def _again(self, unit: Unit, apart: int = 0) -> Unit:
        kind = unit.kind._replace(keys=unit.open_keys(), is_retry=True, apart=apart)
        return Unit(
            unit.submissions,
            kind,
            self._loop.time(),
            attempts=unit.attempts,
            timeouts=unit.timeouts,
            breaks=unit.breaks,
            first_sent_at=unit.first_sent_at,
        )

    def _push(self, units: list[Unit]) -> None:
        now = self._loop.time()
        for unit in units:
            unit.ready_at = now
            self._dealer.ready.push(unit)
        self._dealer.deal()

    def _refuse(self, unit: Unit, reason: str) -> None:
        self._fail_unit(unit, Failed(FailureCode.INVALID, f"not sent: {reason}"))

    def _fail_unit(self, unit: Unit, failure: Failed) -> None:
        for submission in unit.submissions:
            self._fail(submission, unit.kind.keys, failure)

    def _fail_all(self, submission: Submission, failure: Failed) -> None:
        self._fail(submission, self._keys.intersection(submission.reward_names), failure)

    def _fail(self, submission: Submission, keys: Iterable[str], failure: Failed) -> None:
        at = Moment.now()
        for key in keys:
            self.accept(submission, key, failure, submission.submitted_at, at)

    def _expires_at(self, waiting_since: float) -> float:
        return max(waiting_since, self._last_progress) + self._limits.retry_budget_seconds

    def _past_budget(self) -> Failed:
        budget = self._limits.retry_budget_seconds
        if self._down_since is None:
            what = f"the reward server scored nothing for {budget:g} s"
        else:
            reason = next((r.lost_reason for r in self._replicas if not r.is_useless), "")
            what = f"the reward server could not be reached for {budget:g} s ({reason})"
        return Failed(FailureCode.UNAVAILABLE, what)

    def _dead(self) -> Failed:
        assert self.error is not None
        is_credential = isinstance(self.error, UnauthenticatedError | PermissionDeniedError)
        code = FailureCode.EXHAUSTED if is_credential else FailureCode.INVALID
        return Failed(code, self.error.message)

    def _note_version(self, address: str, version: str) -> None:
        before = self.versions.get(address)
        if before is not None and before != version:
            log.warning(
                "reward server changed its version",
                server=self.name,
                address=address,
                old=before,
                new=version,
            )
        self.versions = {**self.versions, address: version}


def _quoted(name: str) -> str:
    return f'"{name}"'
