"""The scorer of a run: a thread with an event loop, and the ways into it from other threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from plaudit.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
)
from plaudit.scoring._compatibility import RewardRules
from plaudit.scoring._convert import prompt_message, valid_completion
from plaudit.scoring._counters import ProtocolCounters
from plaudit.scoring._examples import KnownTexts
from plaudit.scoring._limits import ScoringLimits
from plaudit.scoring._loop_thread import ANSWER_SECONDS, LoopThread
from plaudit.scoring._outcomes import CompletionScores, ScoredOutcome
from plaudit.scoring._server import RewardServer
from plaudit.scoring._setup import setups_of
from plaudit.scoring._tracing import trace_id
from plaudit.scoring._waiting import Waiter
from plaudit.scoring._work import Moment, PromptHead, Submission, Terms
from plaudit.service import Secrets, default_secrets, get_logger
from plaudit.types.jobs import RewardTarget
from plaudit.types.scoring import Completion, Failed, FailureCode, Prompt, Purpose

log = get_logger(__name__)

_TICK_SECONDS: Final = 0.5
"""How often budgets are looked at and the status is told anew."""

_LAST_MOMENT_SECONDS: Final = 2.0
"""For letting go of connections, after what `close` gives to the sessions."""

_TAKEN_EARLY: Final = Failed(FailureCode.TIMEOUT, "it was not scored by the time the scores were taken")
_CLOSED: Final = "the scorer is closed"
_ENDED: Final = "the scorer has ended, and scores nothing any more; its log says why"

_PROMPTS_KEPT: Final = 1024


class RewardScorer:
    """Scores the completions of one run with all of its rewards, in a thread of its own.

    One session per reward server replica. Every completion gets exactly one accepted outcome per reward:
    scored, not applicable, or failed. Trouble with servers never raises here; it becomes a failure, a status
    for people, or a reason to pause. `submit`, `wait`, `take` and the rest may be called from any thread.
    """

    def __init__(
        self,
        targets: Sequence[RewardTarget],
        *,
        session_scope: str,
        job_id: str,
        model: str,
        limits: ScoringLimits | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        """`session_scope` is unique to the run and rank, and the same when it reconnects. `secrets` are those
        of this machine where None.

        Raises InvalidArgumentError, by reward, where a token, CA or certificate that a target names is
        missing or of no use.
        """
        self._names = tuple(target.binding.name for target in targets)
        self._session_scope = session_scope
        self._setups = setups_of(targets, secrets or default_secrets(), session_scope, job_id, model)
        self._limits = limits or ScoringLimits()
        self._servers: tuple[RewardServer, ...] = ()
        self._thread = LoopThread(self._main, self._on_end, "reward-scorer")
        self._loop = self._thread.loop
        self._closing: asyncio.Future[float] = self._loop.create_future()
        self._is_closed = False
        self._is_settled = threading.Event()
        self._detail = ""
        self._submissions: dict[str, Submission] = {}
        self._inbox: deque[Submission] = deque()
        self._inbox_is_signalled = False
        self._waiters: list[Waiter] = []
        self._look_is_due = False
        self._heads: dict[str, PromptHead] = {}
        self._terms = Terms(0, Purpose.TRAIN, 1, self._names, wants_all=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the thread and begins to connect; returns at once."""
        self._thread.start()

    def wait_ready(self, timeout: float) -> bool:
        """Waits until every server has described itself and opened a session, at most `timeout` seconds.

        False while one is not up yet; `status_detail` says which. Raises InvalidArgumentError,
        FailedPreconditionError, UnauthenticatedError or PermissionDeniedError where one will never do.
        """
        is_settled = self._is_settled.wait(timeout)
        for server in self._servers:
            if server.error is not None:
                raise server.error
        return is_settled

    def submit(
        self,
        prompt: Prompt,
        completion: Completion,
        *,
        step: int,
        group_size: int,
        purpose: Purpose = Purpose.TRAIN,
        reward_names: Sequence[str] | None = None,
    ) -> None:
        """Hands in a completion to be scored; returns at once.

        `group_size` is how many completions of `prompt.group_id` will be handed in: a reward that sees the
        group whole waits for all of them. `reward_names`: of which rewards; None for all. Raises only for
        mistakes of the caller: an id that is under way already, a reward that the job does not have, a scorer
        that is closed.
        """
        names = self._names if reward_names is None else self._checked_names(reward_names)
        if self._is_closed:
            raise FailedPreconditionError(_CLOSED)
        if step < 0 or not 0 <= completion.token_count < 2**32:
            raise InvalidArgumentError.of(
                "step, token_count", f"{step}, {completion.token_count}: both are counts, 0 or more"
            )
        head = self._heads.get(prompt.group_id)
        if head is None or (head.prompt is not prompt and head.prompt != prompt):
            head = self._head(prompt)
        terms = self._terms
        if (
            terms.step != step
            or terms.group_size != group_size
            or terms.purpose is not purpose
            or (terms.reward_names is not names and terms.reward_names != names)
        ):
            wants_all = len(names) == len(self._names)
            terms = self._terms = Terms(step, purpose, group_size, names, wants_all)
        completion, size = valid_completion(completion)
        submission = Submission(completion, size, head, terms, time.monotonic())
        if self._submissions.setdefault(completion.completion_id, submission) is not submission:
            raise AlreadyExistsError(
                f"completion {completion.completion_id!r} is being scored already; ids are unique until taken"
            )
        # In this order: the loop clears the flag before it empties the inbox.
        self._inbox.append(submission)
        if not self._inbox_is_signalled:
            self._inbox_is_signalled = True
            self._thread.call_soon(self._drain)

    def wait(self, completion_ids: Iterable[str], timeout: float) -> bool:
        """Waits until each of these has an outcome for each of its rewards, at most `timeout` seconds.

        False where time ran out. Where the scorer ended before they have, nothing is scored any more: raises
        FailedPreconditionError after `close`, and InternalError where its thread broke down.
        """
        waited_for = self._known(completion_ids)
        waiter = Waiter(waited_for)

        def register() -> None:
            self._waiters.append(waiter)
            self._drain()
            waiter.look()
            if not waiter.is_over.is_set():
                for server in self._servers:
                    server.expect(waited_for)

        if self._thread.call_soon(register):
            waiter.is_over.wait(timeout)
            self._thread.call_soon(lambda: self._waiters.remove(waiter))
        if waiter.has_seen_all or all(submission.is_complete for submission in waited_for):
            return True
        if self._is_closed:
            raise FailedPreconditionError(_CLOSED)
        if self._thread.has_ended.is_set():
            raise InternalError(_ENDED)
        return False

    def take(self, completion_ids: Iterable[str]) -> dict[str, CompletionScores]:
        """Removes and returns the outcomes of these completions.

        What is still open is given up: it comes back as a failure of code TIMEOUT, and its batch is
        cancelled.
        """
        taken = self._known(completion_ids)

        def release() -> None:
            self._drain()
            for submission in taken:
                submission.taken = True
            for server in self._servers:
                server.release(taken)

        self._thread.call_and_wait(release)
        at = Moment.now()
        scores: dict[str, CompletionScores] = {}
        for submission in taken:
            del self._submissions[submission.completion_id]
            if not submission.is_complete:
                self._fill_in(submission, _TAKEN_EARLY, at)
            outcomes = submission.outcomes
            if len(outcomes) > 1:
                outcomes = {name: outcomes[name] for name in submission.terms.reward_names}
            scores[submission.completion_id] = CompletionScores(outcomes)
        return scores

    def known_texts(self, prompts: Sequence[Prompt], timeout: float) -> dict[str, KnownTexts]:
        """What each reward calls good and bad for these prompts, by name; waits at most `timeout` seconds.

        A server that writes no examples, or is away, is no error.
        """
        asking = self._known_texts(prompts, timeout)
        try:
            asked = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # the event loop has ended
            asking.close()
            return {name: KnownTexts(problem="the scorer has ended") for name in self._names}
        try:
            return asked.result(timeout + ANSWER_SECONDS)
        except TimeoutError:
            asked.cancel()
            return {name: KnownTexts(problem="no answer came in time") for name in self._names}

    def rules(self) -> dict[str, RewardRules]:
        """By name of the reward, what its server promises of its values; only of servers that have told."""
        return {name: rule for server in self._servers for name, rule in server.rules.items()}

    def status_detail(self) -> str:
        """What is waited for, for people, at most a second old; empty where nothing is."""
        return self._detail

    def trace_id(self, step: int) -> str:
        """Under which reward servers get, and may log, the batches of a step: 32 hexadecimal digits."""
        return trace_id(self._session_scope, step)

    def pause_reason(self) -> str | None:
        """Why the job should pause: a budget is spent, a credential or the session was refused; else None."""
        return next((s.pause_reason for s in self._servers if s.pause_reason is not None), None)

    def counters(self) -> ProtocolCounters:
        """What went wrong with results and connections so far, over all servers."""
        return ProtocolCounters.total(server.book.total() for server in self._servers)

    def counters_by_server(self) -> dict[str, ProtocolCounters]:
        """As `counters`, by name of the reward server."""
        names = dict.fromkeys(server.name for server in self._servers)
        return {
            name: ProtocolCounters.total(s.book.total() for s in self._servers if s.name == name)
            for name in names
        }

    def counters_by_reward(self) -> dict[str, ProtocolCounters]:
        """As `counters`, by name of the reward; what cannot be laid to one of a server's counts for each."""
        counted = {name: one for server in self._servers for name, one in server.book.by_reward().items()}
        return {name: counted.get(name, ProtocolCounters()) for name in self._names}

    def server_versions(self) -> dict[str, str]:
        """By name of the reward server, the version that it last named; where replicas differ, each one's."""
        versions: dict[str, str] = {}
        for server in self._servers:
            if server.versions:
                versions[server.name] = ", ".join(sorted(set(server.versions.values())))
        return versions

    def close(self, timeout: float = 5.0) -> None:
        """Gives up what is open, ends the sessions and the thread, within `timeout` seconds or so."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.end(lambda: self._closing.set_result(timeout), timeout + _LAST_MOMENT_SECONDS)

    # In the caller's thread.

    def _checked_names(self, reward_names: Sequence[str]) -> tuple[str, ...]:
        unknown = [repr(name) for name in reward_names if name not in self._names]
        if unknown:
            raise InvalidArgumentError.of(
                "reward_names", f"{', '.join(unknown)}: the job's rewards are {', '.join(self._names)}"
            )
        return tuple(name for name in self._names if name in reward_names)

    def _head(self, prompt: Prompt) -> PromptHead:
        if len(self._heads) >= _PROMPTS_KEPT:
            self._heads.clear()
        message = prompt_message(prompt)
        head = self._heads[prompt.group_id] = PromptHead(prompt, message, message.ByteSize())
        return head

    def _known(self, completion_ids: Iterable[str]) -> list[Submission]:
        try:
            return [self._submissions[completion_id] for completion_id in dict.fromkeys(completion_ids)]
        except KeyError as error:
            raise NotFoundError(
                f"completion {error.args[0]!r} was not submitted, or was taken already",
                field="completion_ids",
            ) from None

    def _fill_in(self, submission: Submission, failure: Failed, at: Moment) -> None:
        """Fills in what has no outcome. For a submission that the event loop does not touch any more."""
        outcome = ScoredOutcome(failure, at.monotonic - submission.submitted_at, at.wall)
        for name in submission.terms.reward_names:
            submission.outcomes.setdefault(name, outcome)
        submission.is_complete = True

    # In the event loop's thread.

    def _on_end(self) -> None:
        for waiter in self._waiters:
            waiter.is_over.set()

    async def _known_texts(self, prompts: Sequence[Prompt], timeout: float) -> dict[str, KnownTexts]:
        answers = await asyncio.gather(*(s.known_texts(prompts, timeout) for s in self._servers))
        known = {name: texts for answer in answers for name, texts in answer.items()}
        return {name: known[name] for name in self._names}

    async def _main(self) -> None:
        self._servers = tuple(
            RewardServer(setup, self._limits, self._on_complete, self._on_state) for setup in self._setups
        )
        self._drain()
        while not self._closing.done():
            await asyncio.wait({self._closing}, timeout=_TICK_SECONDS)
            for task in [task for server in self._servers for task in (server.sweep, server.fail_strays)]:
                try:
                    task()
                except Exception:
                    # Scoring must outlive any mistake of ours, and deadlines too.
                    log.exception("unexpected error in the scorer")
            try:
                self._detail = "; ".join(filter(None, (s.waiting_detail() for s in self._servers)))
            except Exception:
                log.exception("unexpected error in the scorer")
        await asyncio.gather(*(server.close(self._closing.result()) for server in self._servers))

    def _drain(self) -> None:
        if not self._servers:
            return  # start-up empties the inbox once they are there
        self._inbox_is_signalled = False
        submissions: list[Submission] = []
        while self._inbox:
            submissions.append(self._inbox.popleft())
        if submissions:
            for server in self._servers:
                server.add(submissions)

    def _on_complete(self) -> None:
        # Once for all that completes in this turn of the loop.
        if not self._look_is_due:
            self._look_is_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._look_is_due = False
        for waiter in self._waiters:
            waiter.look()

    def _on_state(self) -> None:
        if any(server.error is not None for server in self._servers) or all(
            server.was_ready for server in self._servers
        ):
            self._is_settled.set()
