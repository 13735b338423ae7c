"""Starts `gateway.parquet_reader`, and reads what it writes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from threading import Event
from typing import IO, Final

import gateway
from gateway.datasets.faults import AbandonedError, ending
from gateway.datasets.rows import MAX_ROW_BYTES
from gateway.parquet_reader.protocol import LAST, READY

IDLE_SECONDS: Final = 120.0
"""Longest wait for the next rows, the start of the process included."""

# What is installed beside the gateway goes before its own folder, as it does in the gateway.
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from gateway.parquet_reader.process import run; "
    "sys.exit(run(*map(int, sys.argv[2:])))"
)
_ROOT: Final = str(Path(gateway.__file__).resolve().parent.parent)
_READ_BYTES: Final = 256 * 1024
_LONGEST_LINE: Final = 2 * MAX_ROW_BYTES
_POLL_SECONDS: Final = 0.2
_TOLD_BYTES: Final = 4096
_END_SECONDS: Final = 10.0


class ReaderEndedError(Exception):
    """The process did not come to the end of the file, through the file's own fault; the message says how."""


def parquet_lines(file: IO[bytes], abandoned: Event) -> Generator[bytes]:
    """Reads an open file, which has a descriptor, by a process that ends with the iterator.

    Yields the lines of `gateway.parquet_reader.protocol` without their end, READY left out. Raises
    ReaderEndedError where the process ends, or does not go on; AbandonedError once `abandoned` is set.
    """
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                _PROGRAM,
                _ROOT,
                str(file.fileno()),
                str(MAX_ROW_BYTES),
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=(file.fileno(),),
            env=_environment(),
            # An interrupt of the terminal is for the gateway, which ends uploads in its own time.
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                yield from _checked(process, _lines(process.stdout, abandoned), stderr)
        finally:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """Nothing of the gateway's secrets."""
    inherited = {
        name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ
    }
    return {
        **inherited,
        "PYTHONUTF8": "1",
        # Arrow's other allocators take hold of memory long before it is used, and of some for good.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        # numpy, which Arrow loads, takes memory for a thread on each core, and is not asked for anything.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _checked(process: subprocess.Popen[bytes], lines: Iterator[bytes], stderr: IO[bytes]) -> Iterator[bytes]:
    if not next(lines, b"").startswith(READY):
        # It has not seen the file, which has no part in it.
        stderr.seek(0)
        told = stderr.read(_TOLD_BYTES).decode("utf-8", "replace").strip().splitlines()
        raise RuntimeError(
            f"the reader of Parquet does not start (status {_status(process)}): {' '.join(told[-1:])}"
        )
    for line in lines:
        yield line
        if line[:1] in LAST:
            return
    raise ReaderEndedError(f"the file is damaged: its reader {ending(_status(process))}")


def _status(process: subprocess.Popen[bytes]) -> int:
    """Of a process that has closed its stdout, which it does by its end."""
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _lines(stdout: IO[bytes], abandoned: Event) -> Iterator[bytes]:
    """Whole lines as they come, until the end."""
    pending = bytearray()
    while block := _block(stdout.fileno(), abandoned):
        *lines, rest = block.split(b"\n")
        for line in lines:
            pending += line
            yield bytes(pending)
            pending.clear()
        pending += rest
        if len(pending) > _LONGEST_LINE:
            raise ReaderEndedError("the file is damaged: its reader writes rows without an end")


def _block(descriptor: int, abandoned: Event) -> bytes:
    """What is there to be read, at least a byte; b"" at the end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + IDLE_SECONDS
    while True:
        if abandoned.is_set():
            raise AbandonedError
        if poll.poll(_POLL_SECONDS * 1000):
            return os.read(descriptor, _READ_BYTES)
        if time.monotonic() > deadline:
            raise ReaderEndedError(f"the file's reader found nothing more in {IDLE_SECONDS:g} s")
