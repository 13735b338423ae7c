"""The runs of a trainer: starting, pausing, cancelling, following and forgetting them.

Every change is on disk before it has an effect and before it is answered, in an order that a crash at any
point leaves right:

* StartRun makes the run's directory, then remembers the attempt, then starts the process. A crash in between
  leaves a run without a process, which the next start reports as failed; the attempts are remembered again
  from the directories.
* CancelRun remembers the run id, then stops the process. After a crash in between the run is reported as
  cancelled.
* A process cannot outlive the service, and is looked for all the same before a run is declared dead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from plaudit.errors import (
    FailedPreconditionError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)
from plaudit.types.statuses import RunState
from trainer_service.journal import JournalError, JournalReader, JournalRecord
from trainer_service.launchers.port import Launcher, LaunchError
from trainer_service.ledger import Ledger, LedgerError
from trainer_service.run_directory import RunDirectories, RunStart, read_start
from trainer_service.supervision import (
    Run,
    RunView,
    end_of_lost_run,
    read_snapshot,
    write_end,
)

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

_READ_AT_ONCE: Final = 500
_POLL_SECONDS: Final = 2.0
_NO_CAPACITY_RETRY_SECONDS: Final = 5.0
_SUPERSEDED_SECONDS: Final = 5.0
_UNSTARTED_SECONDS: Final = 2.0
_EXIT_BEFORE_DELETE_SECONDS: Final = 3.0
_KILL_SECONDS: Final = 15.0


class RunRegistry:
    """All runs that were not deleted. Made by `open`; used from one event loop."""

    def __init__(
        self,
        directories: RunDirectories,
        ledger: Ledger,
        launcher: Launcher,
        *,
        max_concurrent_runs: int,
        linger_seconds: float,
    ) -> None:
        self._directories = directories
        self._ledger = ledger
        self._launcher = launcher
        self._max_concurrent_runs = max_concurrent_runs
        self._linger_seconds = linger_seconds
        self._runs: dict[str, Run] = {}
        self._changing = asyncio.Lock()
        self._operations: set[asyncio.Task[Any]] = set()
        self._closing = False

    @classmethod
    async def open(
        cls, state_dir: Path, launcher: Launcher, *, max_concurrent_runs: int, linger_seconds: float
    ) -> RunRegistry:
        """Takes over the runs in `state_dir`. Those that were under way are over: their process is dead, or
        killed now, and their journals are ended."""
        registry = cls(
            await asyncio.to_thread(RunDirectories, state_dir / "runs"),
            await asyncio.to_thread(Ledger, state_dir / "ledger.sqlite3"),
            launcher,
            max_concurrent_runs=max_concurrent_runs,
            linger_seconds=linger_seconds,
        )
        for run_dir in await asyncio.to_thread(lambda: list(registry._directories.found())):
            await registry._take_over(run_dir)
        return registry

    @property
    def trainer_id(self) -> str:
        """Names the data directory, for ever."""
        return self._ledger.trainer_id

    @property
    def max_concurrent_runs(self) -> int:
        """Runs that are held at once."""
        return self._max_concurrent_runs

    async def start(self, start: RunStart) -> RunView:
        """Starts a run, or returns it as it is where it was started already.

        Raises FailedPreconditionError (RUN_ID_REUSED, RUN_CANCELLED, STALE_ATTEMPT) and
        ResourceExhaustedError (NO_CAPACITY). An attempt that is under way is killed by a higher one of the
        same job: two of them must not write.
        """
        return await self._complete(self._start(start))

    async def get(self, run_id: str) -> RunView:
        """Where a run stands. Raises NotFoundError."""
        return await self._known(run_id).look()

    async def views(self) -> list[RunView]:
        """Where every run stands, by id."""
        return [await self.get(run_id) for run_id in sorted(self._runs) if run_id in self._runs]

    async def pause(self, run_id: str) -> RunView:
        """Asks a run to pause. Raises NotFoundError and FailedPreconditionError (RUN_NOT_PAUSABLE)."""
        async with self._changing:
            run = self._known(run_id)
            state = (await run.look()).state
            if state is RunState.CANCELLING or (state.is_terminal and state is not RunState.PAUSED):
                raise FailedPreconditionError(
                    f"run {run_id} is {state}; only a run that is starting or running can be paused",
                    reason="RUN_NOT_PAUSABLE",
                )
            if not state.is_terminal:
                run.pause()
            return run.view

    async def cancel(self, run_id: str, grace_seconds: float | None) -> RunView:
        """Stops a run, after `grace_seconds` by force, or at once where that is None.

        A run that is not known is remembered for 24 hours, so that it is not started later.
        """
        return await self._complete(self._cancel(run_id, grace_seconds))

    async def delete(self, run_id: str) -> None:
        """Forgets a run and its files. Raises FailedPreconditionError (RUN_ACTIVE) where it is not over."""
        await self._complete(self._delete(run_id))

    async def follow(self, run_id: str, after_sequence: int) -> AsyncGenerator[JournalRecord, None]:
        """A run's journal beyond `after_sequence`, and what is added to it, until its terminal entry.

        Raises NotFoundError, also where the run is deleted meanwhile, and OutOfRangeError
        (SEQUENCE_UNKNOWN).
        """
        run = self._known(run_id)
        try:
            reader = await asyncio.to_thread(JournalReader, run.run_dir)
        except FileNotFoundError:
            raise _not_known(run_id) from None
        try:
            newest = (await asyncio.to_thread(reader.snapshot)).last_sequence
            if after_sequence > newest:
                raise OutOfRangeError(
                    f"after_sequence {after_sequence} is beyond the newest entry of run {run_id}, which is "
                    f"{newest}; was another trainer's journal read before?",
                    reason="SEQUENCE_UNKNOWN",
                )
            sequence = after_sequence
            while True:
                changed, was_over = run.changed, run.is_over
                records = await asyncio.to_thread(reader.read_after, sequence, _READ_AT_ONCE)
                for record in records:
                    yield record
                    sequence = record.sequence
                    if record.is_terminal:
                        return
                if not records:
                    if was_over:
                        return
                    self._known(run_id)
                    await _wait(changed, _POLL_SECONDS)
        finally:
            await asyncio.to_thread(reader.close)

    async def stop(self) -> None:
        """Kills every run, ends their journals, and takes no more: a run dies with its trainer service."""
        async with self._changing:
            self._closing = True
            held = [run for run in self._runs.values() if run.is_held]
            for run in held:
                run.stop("the trainer service was stopped")
        ended = await asyncio.gather(*(run.wait_ended(_KILL_SECONDS) for run in held))
        if not all(ended):
            log.error("not every run could be ended; the next start ends the others")

    def close(self) -> None:
        """Closes what is open. Nothing may be asked any more."""
        self._ledger.close()

    def _known(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            raise _not_known(run_id)
        return run

    async def _complete(self, operation: Coroutine[Any, Any, Result]) -> Result:
        # A caller that goes away, as at its deadline, must not leave a run half started.
        task = asyncio.create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return await asyncio.shield(task)

    async def _take_over(self, run_dir: Path) -> None:
        run_id = run_dir.name
        try:
            start = await asyncio.to_thread(read_start, run_dir)
            snapshot = await asyncio.to_thread(read_snapshot, run_dir)
        except (OSError, ValueError, JournalError) as error:
            log.error("a run's directory cannot be read, and is set aside", run_id=run_id, error=str(error))
            await asyncio.to_thread(self._directories.set_aside, run_id)
            return
        killed = await self._launcher.kill_leftovers(run_dir)
        if not snapshot.state.is_terminal:
            end = end_of_lost_run(cancelled=self._ledger.is_cancelled(run_id))
            log.warning("a run died with the service", run_id=run_id, state=end.state, killed=killed)
            await asyncio.to_thread(write_end, run_dir, end)
            snapshot = await asyncio.to_thread(read_snapshot, run_dir)
        await asyncio.to_thread(self._ledger.remember_attempt, start.job_id, start.attempt)
        self._runs[run_id] = Run(start, run_dir, snapshot)

    async def _start(self, start: RunStart) -> RunView:
        async with self._changing:
            if self._closing:
                raise UnavailableError("the trainer service is stopping; start the run on another trainer")
            run = self._runs.get(start.run_id)
            if run is not None:
                return await self._same_run(run, start)
            self._check_fences(start)
            await self._kill_superseded(start)
            held = sum(run.is_held for run in self._runs.values())
            if held >= self._max_concurrent_runs:
                raise ResourceExhaustedError(
                    f"{held} of {self._max_concurrent_runs} runs are held; wait for one to end, or start the "
                    "run on another trainer",
                    reason="NO_CAPACITY",
                    retry_after=_NO_CAPACITY_RETRY_SECONDS,
                )
            try:
                run_dir = await asyncio.to_thread(self._directories.create, start)
            except (OSError, JournalError) as error:
                raise UnavailableError(
                    f"the run's directory cannot be made: {error}", retry_after=30.0
                ) from error
            run = Run(start, run_dir, await asyncio.to_thread(read_snapshot, run_dir))
            self._runs[start.run_id] = run
            try:
                await asyncio.to_thread(self._ledger.remember_attempt, start.job_id, start.attempt)
                run.supervise(await self._launcher.launch(run_dir), self._linger_seconds)
            except (LaunchError, LedgerError) as error:
                run.fail_unstarted(str(error))
                await run.wait_ended(_UNSTARTED_SECONDS)
            log.info("a run was started", run_id=start.run_id, job_id=start.job_id, attempt=start.attempt)
            return run.view

    async def _same_run(self, run: Run, start: RunStart) -> RunView:
        if not run.start.asks_the_same(start):
            raise FailedPreconditionError(
                f"run {start.run_id} exists with another content; a new run needs a new run_id",
                reason="RUN_ID_REUSED",
            )
        return await run.look()

    def _check_fences(self, start: RunStart) -> None:
        if self._ledger.is_cancelled(start.run_id):
            raise FailedPreconditionError(
                f"run {start.run_id} was cancelled before it was started", reason="RUN_CANCELLED"
            )
        newest = self._ledger.newest_attempt(start.job_id)
        if newest >= start.attempt:
            raise FailedPreconditionError(
                f"attempt {start.attempt} of job {start.job_id} is stale: attempt {newest} was started here",
                reason="STALE_ATTEMPT",
            )

    async def _kill_superseded(self, start: RunStart) -> None:
        for run in list(self._runs.values()):
            if run.start.job_id == start.job_id and run.is_held:
                run.cancel(None, f"attempt {start.attempt} of the job was started")
                await run.wait_ended(_SUPERSEDED_SECONDS)

    async def _cancel(self, run_id: str, grace_seconds: float | None) -> RunView:
        async with self._changing:
            run = self._runs.get(run_id)
            try:
                await asyncio.to_thread(self._ledger.remember_cancelled, run_id)
            except LedgerError:
                if run is None:
                    raise
                log.exception("a cancel is not remembered; the run is stopped all the same", run_id=run_id)
            if run is None:
                return _never_started(run_id)
            await run.look()
            if not run.is_over:
                run.cancel(grace_seconds)
            return run.view

    async def _delete(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is None:
            return
        await run.look()
        if not run.is_over:
            raise FailedPreconditionError(
                f"run {run_id} is {run.view.state}; cancel it, and delete it when it is over",
                reason="RUN_ACTIVE",
            )
        # The journal has ended, but the process may be about to leave.
        if not await run.wait_ended(_EXIT_BEFORE_DELETE_SECONDS):
            run.kill()
            if not await run.wait_ended(_KILL_SECONDS):
                raise UnavailableError(
                    f"the process of run {run_id} does not end; ask again", retry_after=5.0
                )
        async with self._changing:
            if self._runs.pop(run_id, None) is not None:
                await asyncio.to_thread(self._directories.delete, run_id)


def _not_known(run_id: str) -> NotFoundError:
    return NotFoundError(f"there is no run {run_id} on this trainer", field="run_id")


def _never_started(run_id: str) -> RunView:
    return RunView(
        run_id=run_id,
        job_id="",
        attempt=0,
        state=RunState.CANCELLED,
        step=0,
        total_steps=0,
        last_sequence=0,
        error=None,
        status_detail="",
    )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
