"""A reward server of a run: takes in completions, and sees that each gets one outcome per reward."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from plaudit.errors import FailedPreconditionError, PermissionDeniedError, PlauditError, UnauthenticatedError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring._compatibility import (
    RewardRules,
    ServerDescription,
    UselessError,
    describe,
    useless,
)
from plaudit.scoring._connection import LostError, RefusedError
from plaudit.scoring._counters import CounterBook
from plaudit.scoring._dealing import Dealer
from plaudit.scoring._examples import KnownTexts, ask_for_examples
from plaudit.scoring._gate import OutcomeGate
from plaudit.scoring._limits import ScoringLimits
from plaudit.scoring._replica import Replica
from plaudit.scoring._routing import Router
from plaudit.scoring._setup import ServerSetup
from plaudit.scoring._standing import Standing
from plaudit.scoring._work import BREAKS_TOLERATED, SentBatch, Submission, Unit
from plaudit.service import get_logger
from plaudit.types.scoring import Failed, FailureCode, Prompt

log = get_logger(__name__)

TOLD_AFTER_SECONDS: Final = 2.0
"""Shorter waits are part of every step, and not worth telling."""

_SUSPECT_PARTS: Final = 8
"""64 completions become 8 batches of 8, then 8 of 1: few more breaks, and few batches in single file; 256
take a step more."""

_FRUITLESS_STREAMS: Final = 2
"""Broken one after the other before any result, after which no single mishap is to blame."""

_SEARCH_SECONDS: Final = 5.0
_STRAY: Final = Failed(
    FailureCode.INTERNAL, "an unexpected error in the client lost track of it; the client's log says more"
)

_SPLIT: Final = frozenset({FailureCode.INVALID, FailureCode.LIMIT_EXCEEDED})
"""A batch refused so may be refused for one of its completions: each is then sent by itself."""


class RewardServer:
    """Scores with the rewards of one server. Made and used in one event loop."""

    def __init__(
        self,
        setup: ServerSetup,
        limits: ScoringLimits,
        on_complete: Callable[[], None],
        on_state: Callable[[], None],
    ) -> None:
        """`on_complete` is called when a submission has all its outcomes, those of other servers included.

        `on_state` is called when the first session is open, and when no replica will ever do.
        """
        self.name = setup.name
        self.book = CounterBook(binding.name for binding in setup.bindings)
        self.versions: dict[str, str] = {}
        """By address."""
        self.was_ready = False
        """Whether a session was open once."""
        self.error: PlauditError | None = None
        """Why no replica will ever do."""
        self._setup = setup
        self._longest_retry_seconds = max(binding.retry_seconds for binding in setup.bindings)
        self._shortest_retry_seconds = min(binding.retry_seconds for binding in setup.bindings)
        self._on_state = on_state
        self._loop = asyncio.get_running_loop()
        self._router = Router(setup.bindings)
        self._unrouted: list[Submission] = []
        self._replicas: list[Replica] = []
        addresses = dict.fromkeys(setup.addresses)
        self._standing = Standing(setup.name, addresses, self._replicas, self.book.server)
        self._gate = OutcomeGate(setup.name, setup.keys, self.book, on_complete, self._push, self._standing)
        self._apart = itertools.count(1)
        self._next_search = self._loop.time() + _SEARCH_SECONDS
        self._down_since: float | None = self._loop.time()
        self._dealer = Dealer(self._replicas, self._standing, setup.keys, setup.session_scope, self._refuse)
        for address in addresses:
            self._replicas.append(
                Replica(
                    address,
                    setup.load_credentials,
                    self,
                    self._gate,
                    limits,
                    self.book,
                    is_one_of_several=len(addresses) > 1,
                )
            )

    # Work in.

    def add(self, submissions: Iterable[Submission]) -> None:
        """Takes in completions, each for those of its rewards that are this server's."""
        routable: list[Submission] = []
        for submission in submissions:
            if not self._gate.enter(submission):
                continue
            if self.error is not None:
                self._gate.fail(submission, self._dead())
            elif not self._router.knows_lanes:
                self._unrouted.append(submission)
            else:
                routable.append(submission)
        self._dealer.ready.push(self._router.route(routable, self._loop.time()))
        self._dealer.deal()

    def expect(self, submissions: Sequence[Submission]) -> None:
        """Somebody waits for these now: nothing waits for company any more."""
        whole_by = self._loop.time() + self._longest_retry_seconds
        for submission in submissions:
            submission.whole_by = min(submission.whole_by, whole_by)
        self._dealer.deal(flush=True)

    def release(self, submissions: Iterable[Submission]) -> None:
        """Lets go of submissions that were taken; batches that nobody waits for any more are cancelled."""
        self._gate.let_go(submissions)
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
            if self._expires_at(submission.submitted_at, self._longest_retry_seconds) <= now:
                self._gate.fail(submission, self._past_budget(self._longest_retry_seconds))
        self._unrouted = [s for s in self._unrouted if s in self._gate]
        for submission, keys in self._router.expired(now):
            size = submission.terms.group_size
            missing = Failed(FailureCode.INVALID, f"its group of {size} completions never became whole")
            self._gate.fail(submission, missing, keys)

        def is_expired(unit: Unit) -> bool:
            if unit.was_sent:
                return unit.first_sent_at + unit.kind.patience.retry_seconds <= now
            return self._expires_at(unit.ready_at, unit.kind.patience.retry_seconds) <= now

        # While scores come, what was never sent may wait.
        is_scoring = self._expires_at(-math.inf, self._shortest_retry_seconds) > now
        expired = self._dealer.ready.remove_where(is_expired, retries_only=is_scoring)
        expired += self._gate.retries.remove_where(is_expired)
        for replica in self._replicas:
            for batch in replica.unsent:
                if all(is_expired(unit) for unit in batch.units):
                    replica.withdraw(batch)
                    expired.extend(unit for unit in batch.units if not unit.is_settled)
            if self._dealer.ready:
                replica.break_off_if_silent()
        for unit in expired:
            self._gate.fail_unit(unit, self._past_budget(unit.kind.patience.retry_seconds))

    def fail_strays(self) -> None:
        """Fails what is open and nowhere under way, so that no deadline is left for it.

        Nothing ever is, but for a mistake of ours in the middle of the bookkeeping.
        """
        now = self._loop.time()
        if now < self._next_search or not self._gate:
            return
        self._next_search = now + _SEARCH_SECONDS
        under_way = set(self._router.gathering())
        waiting = itertools.chain(self._dealer.ready, self._gate.retries)
        sent = (unit for r in self._replicas for batch in r.batches.values() for unit in batch.units)
        for unit in itertools.chain(waiting, (unit for unit in sent if not unit.is_settled)):
            under_way.update((s, key) for s in unit.submissions for key in unit.kind.keys)
        unrouted = set(self._unrouted)
        strays = 0
        for submission in [s for s in self._gate if s not in unrouted]:
            asked = self._setup.keys.intersection(submission.terms.reward_names)
            keys = [k for k in asked if k not in submission.outcomes and (submission, k) not in under_way]
            strays += len(keys)
            self._gate.fail(submission, _STRAY, keys)
        if strays:
            log.error("completions were lost by the scorer", server=self.name, answers=strays)

    async def close(self, timeout: float) -> None:
        """Cancels what is open and ends the sessions."""
        for replica in self._replicas:
            for batch in list(replica.batches.values()):
                replica.give_up(batch, Failed(FailureCode.CANCELLED, "the scorer was closed"))
        self._dealer.close()
        await asyncio.gather(*(replica.close(timeout) for replica in self._replicas))
        self._gate.retries.close()

    async def known_texts(self, prompts: Sequence[Prompt], timeout: float) -> dict[str, KnownTexts]:
        """What each of its rewards calls good and bad, by name in the job."""
        channel = next((r.channel for r in self._replicas if r.channel is not None), None)
        if channel is None:
            away = KnownTexts(problem="its server is not there")
            return {binding.name: away for binding in self._setup.bindings}
        asked = (ask_for_examples(channel, b, prompts, timeout) for b in self._setup.bindings)
        answers = await asyncio.gather(*asked)
        return {b.name: answer for b, answer in zip(self._setup.bindings, answers, strict=True)}

    @property
    def pause_reason(self) -> str | None:
        """Why the job should pause; None: no reason."""
        if self._gate.pause_reason is None and self.error is not None:
            return self.error.message
        return self._gate.pause_reason

    @property
    def rules(self) -> Mapping[str, RewardRules]:
        """What its rewards promise of their values, by name in the job; empty before it has told."""
        return next((r.description.rules for r in self._replicas if r.description is not None), {})

    def waiting_detail(self) -> str:
        """What is waited for, for people; empty where nothing is, or not for long."""
        now = self._loop.time()
        place = f'reward server "{self.name}" ({", ".join(r.address for r in self._replicas)})'
        oldest = next(iter(self._gate), None)
        if self.error is not None or (self.was_ready and oldest is None):
            return ""
        outstanding = f"{len(self._gate)} of {self._gate.untaken} completions outstanding"
        if oldest is not None and (breaking := self._breaking) is not None:
            # The same whether a connection is up right now or not: it changes every other second.
            return (
                f"{place}: {outstanding} for {now - oldest.submitted_at:.0f} s; its connection breaks again "
                f"and again before it has answered ({breaking})"
            )
        if self._down_since is not None:
            seconds = now - self._down_since
            if seconds < TOLD_AFTER_SECONDS:
                return ""
            replica = next(r for r in self._replicas if not r.is_useless)
            reason = replica.lost_reason
            again = "come back" if self.was_ready else "come up"
            if replica.failed_opens:
                again = "open a session"
            rest = f"; {outstanding}" if oldest is not None else ""
            return f"waiting for {place} to {again} ({reason}) for {seconds:.0f} s{rest}"
        if oldest is None or now - oldest.submitted_at < TOLD_AFTER_SECONDS:
            return ""
        aside = self._standing.told()
        return f"{place}: {outstanding} for {now - oldest.submitted_at:.0f} s{aside and '; '}{aside}"

    # What replicas report (`ReplicaOwner`).

    def describe(self, info: pb.GetServerInfoResponse) -> ServerDescription:
        """Reads a description; raises UselessError where the job cannot use the replica."""
        description = describe(info, self.name, self._setup.bindings)
        if self._router.knows_lanes:
            self._router.check_scopes(description.rules, self.name)
        return description

    def refusal(self, refused: RefusedError) -> UselessError:
        """What a useless status means for the user."""
        setup = self._setup
        return useless(refused.failure, refused.method, self.name, setup.bindings, setup.positions)

    def failing(self, lost: LostError) -> UselessError:
        """What it means for the user that sessions fail to open over and over."""
        return UselessError(
            FailedPreconditionError(
                f"reward server {self.name!r} is there, and fails each time that a session is opened "
                f"({lost}); look into its log, mend it, or change the rewards' config",
                reason="REWARD_SERVER_FAILS",
            )
        )

    def open_frame(self, replica: Replica) -> pb.ScoreRequest:
        """The first frame of a stream."""
        return self._setup.open_frame(self._setup.session_id(replica.address), list(replica.batches))

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
            self._dealer.ready.push(self._router.route(unrouted, self._loop.time()))
        for batch in replica.unsent:
            if batch.must_be_alone or not self._dealer.fits(batch) or self._standing.is_passed_over(replica):
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
        for submission in list(self._gate):
            self._gate.fail(submission, self._dead())
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
            self._gate.fail_unit(
                units[0],
                Failed(
                    FailureCode.INTERNAL,
                    f"the connection to the reward server broke {batch.breaks} times while it had this, the "
                    f"last time with nothing else ({batch.break_reason}); the server's log may say more",
                ),
            )
            return
        if batch.must_be_alone:
            parts = _SUSPECT_PARTS
        size = max(1, math.ceil(len(units) / parts))
        for start in range(0, len(units), size):
            apart = next(self._apart) if parts > 1 else 0
            for unit in units[start : start + size]:
                again = unit.again(self._loop.time(), apart)
                again.breaks = batch.breaks
                self._dealer.ready.push([again])

    def _push(self, units: list[Unit]) -> None:
        now = self._loop.time()
        for unit in units:
            unit.ready_at = now
        self._dealer.ready.push(units)
        self._dealer.deal()

    def _refuse(self, unit: Unit, reason: str) -> None:
        self._gate.fail_unit(unit, Failed(FailureCode.INVALID, f"not sent: {reason}"))

    def _expires_at(self, waiting_since: float, retry_seconds: float) -> float:
        return max(waiting_since, self._gate.last_progress) + retry_seconds

    def _past_budget(self, budget: float) -> Failed:
        if (breaking := self._breaking) is not None:
            what = (
                f"the reward server was reached, and scored nothing for {budget:g} s: its connection broke "
                f"again and again before it had answered ({breaking})"
            )
        elif self._down_since is None:
            what = f"the reward server scored nothing for {budget:g} s"
        else:
            reason = next((r.lost_reason for r in self._replicas if not r.is_useless), "")
            what = f"the reward server could not be reached for {budget:g} s ({reason})"
        return Failed(FailureCode.UNAVAILABLE, what)

    @property
    def _breaking(self) -> str | None:
        """Why the last stream broke, where no replica that is there keeps one long enough to answer."""
        alive = [r for r in self._replicas if not r.is_useless]
        breaking = [r for r in alive if r.fruitless_streams >= _FRUITLESS_STREAMS]
        if not breaking or any(r.is_open and r not in breaking for r in alive):
            return None
        return breaking[0].lost_reason

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
