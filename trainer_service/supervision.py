"""One run from the service's side: its process, what it shows, and its last word when it dies."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from plaudit.errors import UnavailableError
from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.control import RunReport
from trainer_service.journal import (
    Finish,
    JournalEntry,
    JournalError,
    JournalReader,
    JournalSnapshot,
    JournalWriter,
    ModelExported,
    RunError,
    RunStateChanged,
)
from trainer_service.launchers.port import ProcessExit, RunProcess
from trainer_service.progress import Progress
from trainer_service.run_directory import RunStart

log = structlog.get_logger(__name__)

_LAST_REPORTS_SECONDS = 5.0
_RETRY_SECONDS = 5.0
_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunView:
    """What the service says of a run. `total_steps` 0: not known yet."""

    run_id: str
    job_id: str
    attempt: int
    state: RunState
    step: int
    total_steps: int
    last_sequence: int
    error: RunError | None
    status_detail: str


class Run:
    """A run that was not deleted. Used from one event loop.

    The journal is the truth. It is read after each report of the process and before each answer, so that no
    state is shown that was not checked; only what was asked for and has not happened yet (pausing,
    cancelling) is laid over it.
    """

    def __init__(self, start: RunStart, run_dir: Path, snapshot: JournalSnapshot) -> None:
        self.start = start
        self._run_dir = run_dir
        self._snapshot = snapshot
        self._report = RunReport(sequence=0, step=0, total_steps=0)
        self._progress = Progress()
        self._read_trouble = ""
        self._end_trouble = ""
        self._process: RunProcess | None = None
        self._process_gone = False
        self._linger_seconds = 0.0
        self._supervision: asyncio.Task[None] | None = None
        self._pause_requested = False
        self._asked_end: RunStateChanged | None = None
        self._unwritten_end: RunStateChanged | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    @property
    def run_dir(self) -> Path:
        """Where its files lie."""
        return self._run_dir

    @property
    def is_over(self) -> bool:
        """Whether its journal has ended."""
        return self._snapshot.state.is_terminal

    @property
    def is_held(self) -> bool:
        """Whether it takes one of the trainer's places: its process is not gone."""
        return self._process is not None and not self._process_gone

    @property
    def cancel_requested(self) -> bool:
        """Whether it was told to end in state cancelled."""
        return self._asked_end is not None and self._asked_end.state is RunState.CANCELLED

    @property
    def changed(self) -> asyncio.Event:
        """Set once there is something new in the journal. Take it before reading, then wait for it."""
        return self._changed

    @property
    def view(self) -> RunView:
        """Where it stands by the newest reading of its journal."""
        state, error = self._snapshot.state, self._snapshot.error
        detail = self._end_trouble or self._read_trouble or self._report.status_detail
        if not detail and self._process is not None:
            detail = self._progress.trouble(time.monotonic())
        if self.is_over:
            detail = ""
        elif self._unwritten_end is not None:
            state, error = self._unwritten_end.state, self._unwritten_end.error
        elif self.cancel_requested:
            state = RunState.CANCELLING
        elif self._pause_requested:
            state = RunState.PAUSING
        return RunView(
            run_id=self.start.run_id,
            job_id=self.start.job_id,
            attempt=self.start.attempt,
            state=state,
            step=max(self._snapshot.step, self._report.step),
            total_steps=self._report.total_steps or self._snapshot.total_steps,
            last_sequence=self._snapshot.last_sequence,
            error=error,
            status_detail=detail,
        )

    async def look(self) -> RunView:
        """Reads the journal, and says where the run stands; the detail tells where it cannot be read."""
        try:
            await self._refresh()
            self._read_trouble = ""
        except (UnavailableError, JournalError, OSError) as error:
            self._read_trouble = str(error)
            log.warning("a journal cannot be read", run_id=self.start.run_id, error=self._read_trouble)
        return self.view

    def supervise(self, process: RunProcess, linger_seconds: float) -> None:
        """Takes over a process that was just started, until it is gone.

        Once the journal has ended, the process has `linger_seconds` to go.
        """
        self._process = process
        self._linger_seconds = linger_seconds
        self._supervision = asyncio.create_task(
            self._supervise(process), name=f"supervise {self.start.run_id}"
        )

    def fail_unstarted(self, message: str) -> None:
        """Ends the journal of a run that has no process, for the reason `message`."""
        self._asked_end = _failed(ErrorCode.PROCESS_DIED, message)
        nothing_ran = ProcessExit(status=0, out_of_memory=False, output="")
        self._supervision = asyncio.create_task(self._end(nothing_ran), name=f"end {self.start.run_id}")

    def pause(self) -> None:
        """Asks the process to pause; what comes of it is told by the journal."""
        if self._process is not None and not self._pause_requested:
            self._process.pause()
        self._pause_requested = True

    def cancel(self, grace_seconds: float | None, reason: str = "") -> None:
        """Asks the process to stop and kills it after the grace, or at once. A later, shorter grace holds."""
        self._asked_end = RunStateChanged(RunState.CANCELLED, reason=reason)
        if self._process is None:
            return
        if grace_seconds:
            self._process.cancel(grace_seconds)
            self._kill_after(grace_seconds, self._process)
        else:
            self._process.kill()

    def stop(self, message: str) -> None:
        """Kills the process because the service ends; the run has then failed, for the reason `message`."""
        if self._asked_end is None:
            self._asked_end = _failed(ErrorCode.PROCESS_DIED, message)
        if self._process is not None:
            self._process.kill()

    async def wait_ended(self, timeout: float) -> bool:
        """Waits until the process is gone and the journal has ended; says whether that came to pass."""
        if self._supervision is None:
            return True
        return bool((await asyncio.wait({self._supervision}, timeout=timeout))[0])

    def kill(self) -> None:
        """Kills what is left of the process."""
        if self._process is not None:
            self._process.kill()

    def _kill_after(self, seconds: float, process: RunProcess) -> None:
        loop = asyncio.get_running_loop()
        if self._kill_timer is not None:
            if self._kill_timer.when() <= loop.time() + seconds:
                return
            self._kill_timer.cancel()
        self._kill_timer = loop.call_later(seconds, process.kill)

    async def _supervise(self, process: RunProcess) -> None:
        reports = asyncio.create_task(self._follow_reports(process))
        ending = asyncio.create_task(process.wait())
        while not (await asyncio.wait({ending}, timeout=_LOOK_SECONDS))[0]:
            # Reports may stay away; the journal is what counts.
            await self.look()
        try:
            ended = ending.result()
        except Exception:
            # Whatever is wrong with the launcher: a run whose process is not watched is not shown as running.
            log.exception("a run's process cannot be waited for", run_id=self.start.run_id)
            process.kill()
            ended = ProcessExit(status=-signal.SIGKILL, out_of_memory=False, output="")
        await asyncio.wait({reports}, timeout=_LAST_REPORTS_SECONDS)
        reports.cancel()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._process_gone = True
        log.info("a run's process is gone", run_id=self.start.run_id, status=ended.status)
        await self._end(ended)

    async def _follow_reports(self, process: RunProcess) -> None:
        async for report in process.reports():
            self._report = report
            if report.sequence > self._snapshot.last_sequence:
                await self.look()

    async def _refresh(self) -> None:
        if self.is_over:
            return
        snapshot = await asyncio.to_thread(read_snapshot, self._run_dir)
        if snapshot.last_sequence > self._snapshot.last_sequence:
            self._snapshot = snapshot
            self._progress.note(snapshot.step, time.monotonic())
            self._changed.set()
            self._changed = asyncio.Event()
            if self.is_over and self._process is not None and self.is_held:
                self._kill_after(self._linger_seconds, self._process)

    async def _end(self, ended: ProcessExit) -> None:
        """Sees to it that the journal has ended, now that its writer is gone."""
        end = self._asked_end or _death_of(ended)
        while True:
            try:
                await self._refresh()
                if self.is_over:
                    return
                last: tuple[JournalEntry, ...] = (end,)
                if self._asked_end is None:
                    finish = await asyncio.to_thread(_read_finish, self._run_dir)
                    last = last if finish is None else _end_without_model(finish, ended)
                await asyncio.to_thread(write_end, self._run_dir, *last)
            except (UnavailableError, JournalError, OSError) as error:
                self._unwritten_end = end
                self._end_trouble = f"the run is over, but its journal cannot be ended: {error}"
                log.error(self._end_trouble, run_id=self.start.run_id)
                await asyncio.sleep(_RETRY_SECONDS)


def read_snapshot(run_dir: Path) -> JournalSnapshot:
    """What a run's journal says now. Blocks."""
    with JournalReader(run_dir) as reader:
        return reader.snapshot()


def write_end(run_dir: Path, *last: JournalEntry) -> None:
    """Ends a journal whose process is gone: the last of these entries is terminal. Blocks."""
    with JournalWriter(run_dir) as journal:
        journal.append_all(last)


def _read_finish(run_dir: Path) -> Finish | None:
    with JournalReader(run_dir) as reader:
        return reader.finish()


def end_of_lost_run(*, cancelled: bool) -> RunStateChanged:
    """The last entry of a run whose service died, and its process with it."""
    if cancelled:
        return RunStateChanged(RunState.CANCELLED)
    return _failed(ErrorCode.PROCESS_DIED, "the trainer service died, and the run's process with it")


def _failed(code: ErrorCode, message: str) -> RunStateChanged:
    return RunStateChanged(RunState.FAILED, RunError(code, message))


def _end_without_model(finish: Finish, ended: ProcessExit) -> tuple[JournalEntry, ...]:
    """The last entries of a run that died when its training was done: that is not lost with the model."""
    completed = RunStateChanged(RunState.COMPLETED)
    if finish.told_of_model:
        return (completed,)
    death = _death_of(ended).error
    assert death is not None
    if ended.out_of_memory:
        error = RunError(
            ErrorCode.OUT_OF_MEMORY,
            "memory ran out while the model was exported, and the kernel killed the process. Every step is "
            "done and the checkpoint is complete: export it again once memory is free (plaudit model "
            "export), or on a trainer with more of it, or download the checkpoint itself",
        )
    else:
        error = RunError(
            death.code,
            f"the process died while the model was exported: {death.message}. Every step is done and the "
            "checkpoint is complete: export it again (plaudit model export), or download the checkpoint",
        )
    return ModelExported(finish.step, None, error), completed


def _death_of(ended: ProcessExit) -> RunStateChanged:
    output = f"; its last output was:\n{ended.output}" if ended.output else "; it printed no cause"
    if ended.out_of_memory or ended.status == -signal.SIGKILL:
        # Whatever it printed, it was not killed for that: where it was is all that the last line tells.
        output = f"; the last that it printed was: {ended.output.splitlines()[-1]}" if ended.output else ""
    if ended.out_of_memory:
        return _failed(
            ErrorCode.OUT_OF_MEMORY,
            "the kernel killed the run's process because memory ran out; a smaller micro_batch_size, "
            f"max_response_length or base model, or a machine with more memory, would work{output}",
        )
    if ended.status == -signal.SIGKILL:
        return _failed(
            ErrorCode.PROCESS_DIED,
            "the run's process was killed by signal 9 (SIGKILL); if the machine was short of memory, the "
            f"kernel did it, and its log says so{output}",
        )
    if ended.status < 0:
        number, name = -ended.status, signal.strsignal(-ended.status)
        return _failed(
            ErrorCode.PROCESS_DIED, f"the run's process was killed by signal {number} ({name}){output}"
        )
    return _failed(
        ErrorCode.PROCESS_DIED,
        f"the run's process ended with status {ended.status} before the run was over{output}",
    )
