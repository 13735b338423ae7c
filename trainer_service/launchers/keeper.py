"""Stands between the service and a run, as a process: `keeper --run-dir DIR --pass-fds R,W -- COMMAND`.

The keeper leads the run's process group, writes what the run prints into a bounded log, and watches its
stdin, whose far end the service holds. When that closes, however the service died, the keeper kills the whole
group, itself included. It is a process of its own because the run cannot be trusted with this: while it
imports a library or reads weights from a slow disk, none of its threads may get a turn.

When the run has ended the keeper prints one line, `{"status": STATUS}`, and stays until the service kills the
group: as long as its leader lives, the group's number means nobody else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NoReturn

from trainer_service.launchers.output import OutputLog
from trainer_service.launchers.processes import kill_processes_of

CANNOT_START_STATUS: Final = 127

_READ_BYTES: Final = 65_536
_LAST_OUTPUT_SECONDS: Final = 1.0
_KILL_PATIENCE_SECONDS: Final = 2.0


def main() -> NoReturn:
    """Runs the command, and waits for its end or the service's."""
    parser = argparse.ArgumentParser(prog="trainer_service.launchers.keeper")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--pass-fds", required=True, help="descriptors of the run's control line, R,W")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    control_fds = [int(fd) for fd in options.pass_fds.split(",")]
    output = OutputLog(options.run_dir)
    output_read, output_write = os.pipe()
    try:
        run = subprocess.Popen(
            options.command,
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            pass_fds=control_fds,
        )
    except OSError as error:
        output.write(f"{options.command[0]} cannot be started: {error}\n".encode())
        _tell(CANNOT_START_STATUS)
        _await_service_end(options.run_dir)
    os.close(output_write)
    for fd in control_fds:
        os.close(fd)
    _tell(_keep(run, output_read, output, options.run_dir))
    _await_service_end(options.run_dir)


def _keep(run: subprocess.Popen[bytes], output_read: int, output: OutputLog, run_dir: Path) -> int:
    """Copies output until the run has ended, and returns its status."""
    run_ended = os.pidfd_open(run.pid)
    lifeline = sys.stdin.fileno()
    with selectors.DefaultSelector() as selector:
        for fd in (run_ended, lifeline, output_read):
            selector.register(fd, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if lifeline in ready:
                _kill_everything(run_dir)
            if output_read in ready:
                data = os.read(output_read, _READ_BYTES)
                output.write(data)
                if not data:
                    selector.unregister(output_read)
            elif run_ended in ready:
                break
    _copy_rest(output_read, output)
    return run.wait()


def _copy_rest(output_read: int, output: OutputLog) -> None:
    """Copies what is still in the pipe. What the run started may hold it open, and is not waited for."""
    os.set_blocking(output_read, False)
    give_up = time.monotonic() + _LAST_OUTPUT_SECONDS
    try:
        while time.monotonic() < give_up and (data := os.read(output_read, _READ_BYTES)):
            output.write(data)
    except BlockingIOError:
        pass


def _tell(status: int) -> None:
    with contextlib.suppress(OSError):  # the service is gone, which is seen to next
        os.write(sys.stdout.fileno(), json.dumps({"status": status}).encode("ascii") + b"\n")


def _await_service_end(run_dir: Path) -> NoReturn:
    while os.read(sys.stdin.fileno(), _READ_BYTES):
        pass
    _kill_everything(run_dir)


def _kill_everything(run_dir: Path) -> NoReturn:
    try:
        # First those that left the group: after the group's death nobody would be here to kill them.
        kill_processes_of(run_dir, _KILL_PATIENCE_SECONDS)
    finally:
        os.killpg(0, signal.SIGKILL)
    sys.exit("killpg returned")


if __name__ == "__main__":
    main()
