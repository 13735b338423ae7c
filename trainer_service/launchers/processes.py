"""Finding and killing every process of a run, also those that left its process group.

A run's processes inherit a variable that names the run's directory. Unlike a process id, which the kernel
gives to somebody else later, it cannot be mistaken.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

RUN_DIR_VARIABLE: Final = "PLAUDIT_RUN_DIR"

_POLL_SECONDS: Final = 0.02


def processes_of(run_dir: Path) -> list[int]:
    """The ids of the living processes of a run, this one left out."""
    mark = _mark_of(run_dir)
    return [
        pid
        for entry in os.scandir("/proc")
        if entry.name.isdigit() and (pid := int(entry.name)) != os.getpid() and _bears(pid, mark)
    ]


def kill_processes_of(run_dir: Path, patience_seconds: float) -> int:
    """Kills every process of a run, and returns how many, once none is left.

    Raises TimeoutError where some are still there after `patience_seconds`, as when a driver holds them.
    """
    give_up = time.monotonic() + patience_seconds
    killed: set[int] = set()
    while found := processes_of(run_dir):
        if time.monotonic() > give_up:
            raise TimeoutError(f"processes {found} of {run_dir.name} cannot be killed")
        for pid in found:
            _kill(pid, _mark_of(run_dir))
        killed.update(found)
        time.sleep(_POLL_SECONDS)
    return len(killed)


def _mark_of(run_dir: Path) -> bytes:
    return f"{RUN_DIR_VARIABLE}={run_dir}".encode()


def _bears(pid: int, mark: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # it is gone, or somebody else's
    # A zombie has no environment any more: what is dead already is not found.
    return mark in environment.split(b"\0")


def _kill(pid: int, mark: bytes) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # Looked at again through a handle that cannot come to mean another process.
        if _bears(pid, mark):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
