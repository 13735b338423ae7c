"""What the service needs of whatever starts runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainer_service.control import RunReport


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a run's process ended.

    `status` is its exit status, or minus the number of the signal that killed it. `out_of_memory`: the kernel
    killed a process to free memory while this one ran. `output` holds the last lines that it printed.
    """

    status: int
    out_of_memory: bool
    output: str


class LaunchError(Exception):
    """A run's process could not be started. The message says why, for people."""


class RunProcess(Protocol):
    """A run's process, with everything that it started."""

    def pause(self) -> None:
        """Asks it to pause."""

    def cancel(self, grace_seconds: float) -> None:
        """Asks it to stop; whoever asks kills it `grace_seconds` later."""

    def kill(self) -> None:
        """Kills it and everything that it started, at once."""

    def reports(self) -> AsyncIterator[RunReport]:
        """What it reports, until it is gone. To be iterated once."""

    async def wait(self) -> ProcessExit:
        """Waits until neither it nor anything that it started is left. To be awaited once."""


class Launcher(Protocol):
    """Starts runs."""

    async def launch(self, run_dir: Path) -> RunProcess:
        """Starts the run that `run_dir` describes. Raises LaunchError."""

    async def kill_leftovers(self, run_dir: Path) -> int:
        """Kills what an earlier service left of a run, and returns how many processes that were."""
