"""The scorer of a run: a thread with an event loop, and the ways into it from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import structlog

from plaudit.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring._convert import prompt_message, valid_completion
from plaudit.scoring._counters import ProtocolCounters
from plaudit.scoring._limits import ScoringLimits
from plaudit.scoring._outcomes import CompletionScores, ScoredOutcome
from plaudit.scoring._server import RewardServer, ServerSetup
from plaudit.scoring._work import Moment, Submission
from plaudit.types.jobs import RewardTarget
from plaudit.types.scoring import Completion, Failed, FailureCode, Prompt, Purpose

log = structlog.get_logger(__name__)

_TICK_SECONDS: Final = 0.5
"""How often budgets are looked at and the status is told anew."""

_LOOP_ANSWER_SECONDS: Final = 30.0
"""The event loop answers at once; this keeps its death from hanging the caller."""

_LAST_MOMENT_SECONDS: Final = 2.0
"""For letting go of connections, after what `close` gives to the sessions."""

_TAKEN_EARLY: Final = Failed(FailureCode.TIMEOUT, "it was not scored by the time the scores were taken")
_ENDED: Final = Failed(FailureCode.INTERNAL, "the scorer has ended; its log may say why")

_PROMPTS_KEPT: Final = 1024


@dataclass(eq=False, slots=True)
class _Waiter:
    open_ids: set[str]
    done: threading.Event


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
    ) -> None:
        """`session_scope` is unique to the run and rank, and the same when it reconnects."""
        self._names = tuple(target.binding.name for target in targets)
        self._setups = _setups(targets, session_scope, job_id, model)
        self._limits = limits or ScoringLimits()
        self._servers: tuple[RewardServer, ...] = ()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="reward-scorer", daemon=True)
        self._closing: asyncio.Future[float] = self._loop.create_future()
        self._is_closed = False
        self._has_ended = threading.Event()
        self._is_settled = threading.Event()
        self._detail = ""
        self._submissions: dict[str, Submission] = {}
        self._inbox: deque[Submission] = deque()
        self._inbox_is_signalled = False
        self._waiters: list[_Waiter] = []
        self._prompts: dict[str, tuple[Prompt, pb.PromptGroup, int]] = {}

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
            raise FailedPreconditionError("the scorer is closed")
        if step < 0 or not 0 <= completion.token_count < 2**32:
            raise InvalidArgumentError.of(
                "step, token_count", f"{step}, {completion.token_count}: both are counts, 0 or more"
            )
        head, head_bytes = self._prompt(prompt)
        completion, size = valid_completion(completion)
        submission = Submission(
            completion_id=completion.completion_id,
            group_id=prompt.group_id,
            prompt=head,
            prompt_bytes=head_bytes,
            completion=completion,
            completion_bytes=size,
            step=step,
            purpose=purpose,
            group_size=group_size,
            reward_names=names,
            wants_all=reward_names is None or len(names) == len(self._names),
            submitted_at=self._loop.time(),
            is_complete=not names,
        )
        if self._submissions.setdefault(completion.completion_id, submission) is not submission:
            raise AlreadyExistsError(
                f"completion {completion.completion_id!r} is being scored already; ids are unique until taken"
            )
        # In this order: the loop clears the flag before it empties the inbox.
        self._inbox.append(submission)
        if not self._inbox_is_signalled:
            self._inbox_is_signalled = True
            self._call_soon(self._drain)

    def wait(self, completion_ids: Iterable[str], timeout: float) -> bool:
        """Waits until each of these has an outcome for each of its rewards, at most `timeout` seconds."""
        waited_for = self._known(completion_ids)
        if all(submission.is_complete for submission in waited_for):
            return True
        waiter = _Waiter(set(), threading.Event())

        def register() -> None:
            self._drain()
            waiter.open_ids = {s.completion_id for s in waited_for if not s.is_complete}
            if waiter.open_ids:
                self._waiters.append(waiter)
                for server in self._servers:
                    server.expect(waited_for)
            else:
                waiter.done.set()

        def unregister() -> None:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

        if not self._call_soon(register):
            self._fail_open(waited_for, _ENDED)
            return True
        waiter.done.wait(timeout)
        self._call_soon(unregister)
        return all(submission.is_complete for submission in waited_for)

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

        self._call_and_wait(release)
        self._fail_open(taken, _TAKEN_EARLY)
        for submission in taken:
            del self._submissions[submission.completion_id]
        return {
            submission.completion_id: CompletionScores(
                {name: submission.outcomes[name] for name in submission.reward_names}
            )
            for submission in taken
        }

    def status_detail(self) -> str:
        """What is waited for, for people, at most a second old; empty where nothing is."""
        return self._detail

    def pause_reason(self) -> str | None:
        """Why the job should pause: a budget is spent, a credential or the session was refused; else None."""
        return next((s.pause_reason for s in self._servers if s.pause_reason is not None), None)

    def counters(self) -> ProtocolCounters:
        """What went wrong with results and connections so far, over all servers."""
        return ProtocolCounters.total(server.counters for server in self._servers)

    def counters_by_server(self) -> dict[str, ProtocolCounters]:
        """As `counters`, by name of the reward server."""
        names = dict.fromkeys(server.name for server in self._servers)
        return {
            name: ProtocolCounters.total(s.counters for s in self._servers if s.name == name)
            for name in names
        }

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
        if self._thread.is_alive():
            self._call_soon(lambda: self._closing.set_result(timeout))
            self._thread.join(timeout + _LAST_MOMENT_SECONDS)
        else:
            self._has_ended.set()
            self._loop.close()

    # In the caller's thread.

    def _checked_names(self, reward_names: Sequence[str]) -> tuple[str, ...]:
        unknown = [repr(name) for name in reward_names if name not in self._names]
        if unknown:
            raise InvalidArgumentError.of(
                "reward_names", f"{', '.join(unknown)}: the job's rewards are {', '.join(self._names)}"
            )
        return tuple(name for name in self._names if name in reward_names)

    def _prompt(self, prompt: Prompt) -> tuple[pb.PromptGroup, int]:
        kept = self._prompts.get(prompt.group_id)
        if kept is not None and kept[0] == prompt:
            return kept[1], kept[2]
        message = prompt_message(prompt)
        if len(self._prompts) >= _PROMPTS_KEPT:
            self._prompts.clear()
        size = message.ByteSize()
        self._prompts[prompt.group_id] = prompt, message, size
        return message, size

    def _known(self, completion_ids: Iterable[str]) -> list[Submission]:
        try:
            return [self._submissions[completion_id] for completion_id in dict.fromkeys(completion_ids)]
        except KeyError as error:
            raise NotFoundError(
                f"completion {error.args[0]!r} was not submitted, or was taken already",
                field="completion_ids",
            ) from None

    def _fail_open(self, submissions: Iterable[Submission], failure: Failed) -> None:
        """Fills in what has no outcome. For submissions that the event loop does not touch any more."""
        at = Moment.now()
        for submission in submissions:
            if not submission.is_complete:
                outcome = ScoredOutcome(failure, at.monotonic - submission.submitted_at, at.wall)
                for name in submission.reward_names:
                    submission.outcomes.setdefault(name, outcome)
                submission.is_complete = True

    def _call_soon(self, function: Callable[[], None]) -> bool:
        """Has the event loop call `function`; False where it has ended."""
        if self._has_ended.is_set():
            return False
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # it ended just now
            return False
        return True

    def _call_and_wait(self, function: Callable[[], None]) -> None:
        """Has the event loop call `function`, and waits for it. A mistake of ours is logged, not raised."""
        called = threading.Event()

        def call() -> None:
            try:
                function()
            except Exception:
                log.exception("unexpected error in the scorer")
            called.set()

        if self._call_soon(call) and not called.wait(_LOOP_ANSWER_SECONDS):
            log.error("the scorer's event loop does not answer")

    # In the event loop's thread.

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        except Exception:
            log.exception("the scorer's event loop failed")
        finally:
            self._has_ended.set()
            for waiter in self._waiters:
                waiter.done.set()
            self._loop.close()

    async def _main(self) -> None:
        self._servers = tuple(
            RewardServer(setup, self._limits, self._on_complete, self._on_state) for setup in self._setups
        )
        self._drain()
        while not self._closing.done():
            await asyncio.wait({self._closing}, timeout=_TICK_SECONDS)
            try:
                for server in self._servers:
                    server.sweep()
                self._detail = "; ".join(filter(None, (s.waiting_detail() for s in self._servers)))
            except Exception:
                # Scoring must outlive any mistake of ours.
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

    def _on_complete(self, submission: Submission) -> None:
        for waiter in self._waiters:
            waiter.open_ids.discard(submission.completion_id)
            if not waiter.open_ids:
                waiter.done.set()

    def _on_state(self) -> None:
        if any(server.error is not None for server in self._servers) or all(
            server.was_ready for server in self._servers
        ):
            self._is_settled.set()


def _setups(
    targets: Sequence[RewardTarget], session_scope: str, job_id: str, model: str
) -> list[ServerSetup]:
    """One setup for all rewards of a server; its addresses are part of what it is."""
    places: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for position, target in enumerate(targets):
        places.setdefault((target.binding.server, target.addresses), []).append(position)
    return [
        ServerSetup(
            name=name,
            addresses=addresses,
            bindings=tuple(targets[position].binding for position in positions),
            positions=tuple(positions),
            session_scope=session_scope,
            job_id=job_id,
            model=model,
        )
        for (name, addresses), positions in places.items()
    ]
