"""Runs as processes of this machine, each in a process group of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from trainer_service.control import RunChannel, RunReport
from trainer_service.launchers.memory import kernel_memory_kills
from trainer_service.launchers.output import last_lines
from trainer_service.launchers.port import LaunchError, ProcessExit
from trainer_service.launchers.processes import RUN_DIR_VARIABLE, kill_processes_of
from trainer_service.run_directory import read_start

log = structlog.get_logger(__name__)

RUN_COMMAND: Final = (sys.executable, "-m", "trainer_service.training.run")
"""What trains; `--run-dir DIR --control-fds R,W` is added."""

EXPORT_COMMAND: Final = (sys.executable, "-m", "trainer_service.training.export_process")
"""What exports a checkpoint; the same is added."""

TOKENS_COMMAND: Final = (sys.executable, "-m", "trainer_service.training.token_process")
"""What counts the tokens of a dataset; the same is added."""

_KILL_PATIENCE_SECONDS: Final = 10.0

_ENVIRONMENT: Final = {
    # Two cores may be two threads of one: workers that spin while they wait take the time of those that work.
    "OMP_WAIT_POLICY": "PASSIVE",
    # Runs start their workers afresh; gRPC's handlers for fork only cost.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # The last words of a process that is killed are not to die in its buffers.
    "PYTHONUNBUFFERED": "1",
    # A crash in native code says where.
    "PYTHONFAULTHANDLER": "1",
}


class LocalLauncher:
    """Starts each run as a keeper and, below it, the command (see keeper.py)."""

    def __init__(
        self, command: Sequence[str] = RUN_COMMAND, *, unsloth_interpreter: Path | None = None
    ) -> None:
        """`unsloth_interpreter` takes the place of the command's first word for runs with use_unsloth."""
        self._command = tuple(command)
        self._unsloth_interpreter = unsloth_interpreter

    async def launch(self, run_dir: Path) -> LocalRunProcess:
        """Starts the run that `run_dir` describes. Raises LaunchError."""
        command = self._command
        if self._unsloth_interpreter is not None:
            start = await asyncio.to_thread(read_start, run_dir)
            if start.spec.hyperparameters.use_unsloth:
                command = (str(self._unsloth_interpreter), *command[1:])
        channel, child_fds = RunChannel.open()
        fds = ",".join(str(fd) for fd in child_fds)
        kills_before = kernel_memory_kills()
        try:
            keeper = await asyncio.create_subprocess_exec(
                sys.executable,
                *(
                    "-m",
                    "trainer_service.launchers.keeper",
                    "--run-dir",
                    str(run_dir),
                    "--pass-fds",
                    fds,
                    "--",
                ),
                *(*command, "--run-dir", str(run_dir), "--control-fds", fds),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=child_fds,
                start_new_session=True,
                env={**os.environ, **_ENVIRONMENT, RUN_DIR_VARIABLE: str(run_dir)},
            )
        except OSError as error:
            channel.close()
            raise LaunchError(f"the run's process could not be started: {error}") from error
        finally:
            for fd in child_fds:
                os.close(fd)
        return LocalRunProcess(run_dir, keeper, channel, kills_before)

    async def kill_leftovers(self, run_dir: Path) -> int:
        """Kills what an earlier service left of a run, and returns how many processes that were."""
        return await asyncio.to_thread(_kill_rest, run_dir)


class LocalRunProcess:
    """A run's process group; see RunProcess."""

    def __init__(
        self, run_dir: Path, keeper: asyncio.subprocess.Process, channel: RunChannel, kills_before: int | None
    ) -> None:
        self._run_dir = run_dir
        self._keeper = keeper
        self._channel = channel
        self._memory_kills = kills_before

    def pause(self) -> None:
        """Asks it to pause."""
        self._channel.pause()

    def cancel(self, grace_seconds: float) -> None:
        """Asks it to stop; whoever asks kills it `grace_seconds` later."""
        self._channel.cancel(grace_seconds)

    def kill(self) -> None:
        """Kills the whole group, at once."""
        # Until the keeper is reaped its number is the group's; afterwards it may be anybody's.
        if self._keeper.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._keeper.pid, signal.SIGKILL)

    async def reports(self) -> AsyncIterator[RunReport]:
        """What the process reports, until it is gone."""
        async for report in self._channel.reports():
            # Kept fresh, so that a kill long ago is not taken for the cause of a death today.
            self._memory_kills = kernel_memory_kills()
            yield report

    async def wait(self) -> ProcessExit:
        """Waits until nothing of the run is left, which it sees to once the run's own process has ended."""
        assert self._keeper.stdout is not None
        line = await self._keeper.stdout.readline()
        self.kill()
        await self._keeper.wait()
        await asyncio.to_thread(_kill_rest, self._run_dir)
        self._channel.close()
        # Without a line the keeper itself was killed, as by `kill` above or by the kernel.
        status: int = json.loads(line)["status"] if line.endswith(b"\n") else -signal.SIGKILL
        kills = kernel_memory_kills()
        return ProcessExit(
            status=status,
            out_of_memory=status == -signal.SIGKILL
            and kills is not None
            and self._memory_kills is not None
            and kills > self._memory_kills,
            output=await asyncio.to_thread(last_lines, self._run_dir),
        )


def _kill_rest(run_dir: Path) -> int:
    try:
        return kill_processes_of(run_dir, _KILL_PATIENCE_SECONDS)
    except TimeoutError as error:
        log.error("a run is over, but not all of its processes can be killed", error=str(error))
        return 0
