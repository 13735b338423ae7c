"""The line between the service and a run's process: two pipes, a JSON object a line in each direction.

Service to process: `{"command": "pause"}` and `{"command": "cancel", "grace_seconds": 30.0}`. Process to
service: `{"sequence": 17, "step": 12, "total_steps": 300, "status_detail": ""}` after each commit to the
journal, and when the status detail changes. States are told by the journal alone. The end of the commands
means that the service died; the process then ends at once.

Cancelling without grace needs no word: the service kills the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import structlog

log = structlog.get_logger(__name__)

SERVICE_DIED_EXIT_STATUS: Final = 75
"""Exit status of a run's process whose service died."""

MAX_STATUS_DETAIL_LENGTH: Final = 1_000
_DETAIL_INTERVAL_SECONDS: Final = 1.0
_READ_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run's process says of itself between two entries of its journal.

    `sequence` is the newest entry that it wrote; `total_steps` 0: not known yet; `status_detail` says, for
    people, what it waits for.
    """

    sequence: int
    step: int
    total_steps: int
    status_detail: str = ""


class RunControl:
    """The process's end of the line. A training loop asks it between steps what it should do.

    Two threads of its own read commands and send reports, so that `report` never waits, whatever the service
    does. Once the service is gone the reading thread ends the process with `os._exit`: a loop that is deep in
    a tensor library cannot be trusted to return.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._pause_requested = threading.Event()
        self._cancel_requested = threading.Event()
        self._cancel_grace_seconds: float | None = None
        self._changed = threading.Condition()
        self._newest: RunReport | None = None

    @classmethod
    def from_fds(cls, read_fd: int, write_fd: int) -> RunControl:
        """Takes over the two ends that the launcher handed down (`--control-fds R,W`)."""
        for fd in (read_fd, write_fd):
            # Programs that the run starts must not keep the line open after its death.
            os.set_inheritable(fd, False)
        return cls(read_fd, write_fd)

    def start(self) -> None:
        """Begins to listen. Call it first of all, before anything slow is imported."""
        for work, name in ((self._read_commands, "run-commands"), (self._send_reports, "run-reports")):
            threading.Thread(target=work, name=name, daemon=True).start()

    @property
    def pause_requested(self) -> bool:
        """Whether to stop at the next generation boundary, with a checkpoint if there is anything to save."""
        return self._pause_requested.is_set()

    @property
    def cancel_requested(self) -> bool:
        """Whether to stop as soon as it can, within the grace: it beats a pause."""
        return self._cancel_requested.is_set()

    @property
    def cancel_grace_seconds(self) -> float | None:
        """Seconds from the request to the kill. None: no cancel was requested."""
        return self._cancel_grace_seconds

    def report(self, *, sequence: int, step: int, total_steps: int, status_detail: str = "") -> None:
        """Tells the service where the run stands. Never waits and never raises; the newest report wins.

        Sent at once where `sequence` moved, else at most once a second. Call it after each commit, and as
        often as the status detail changes.
        """
        with self._changed:
            self._newest = RunReport(sequence, step, total_steps, status_detail[:MAX_STATUS_DETAIL_LENGTH])
            self._changed.notify()

    def _read_commands(self) -> None:
        buffer = b""
        while chunk := _read(self._read_fd):
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                self._obey(json.loads(line))
        os._exit(SERVICE_DIED_EXIT_STATUS)

    def _obey(self, command: dict[str, Any]) -> None:
        if command["command"] == "pause":
            self._pause_requested.set()
        elif command["command"] == "cancel":
            self._cancel_grace_seconds = command["grace_seconds"]
            self._cancel_requested.set()

    def _send_reports(self) -> None:
        sent: RunReport | None = None
        sent_at = 0.0
        while True:
            with self._changed:
                while (report := self._newest) is None or report == sent:
                    self._changed.wait()
                if sent is not None and report.sequence == sent.sequence:
                    due_in = sent_at + _DETAIL_INTERVAL_SECONDS - time.monotonic()
                    if due_in > 0:
                        self._changed.wait(due_in)
                        continue
            try:
                _write_all(self._write_fd, _line(asdict(report)))
            except OSError:
                return  # the service is gone, which the other thread sees too
            sent, sent_at = report, time.monotonic()


class RunChannel:
    """The service's end of the line."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._closed = False
        os.set_blocking(write_fd, False)

    @classmethod
    def open(cls) -> tuple[Self, tuple[int, int]]:
        """A channel, and the (read, write) descriptors to hand down to the process, then to close here."""
        command_read, command_write = os.pipe()
        report_read, report_write = os.pipe()
        return cls(report_read, command_write), (command_read, report_write)

    def pause(self) -> None:
        """Asks the process to pause."""
        self._send({"command": "pause"})

    def cancel(self, grace_seconds: float) -> None:
        """Asks the process to stop; it is killed `grace_seconds` later."""
        self._send({"command": "cancel", "grace_seconds": grace_seconds})

    async def reports(self) -> AsyncIterator[RunReport]:
        """What the process reports, until it closes its end, as by its death. To be iterated once."""
        loop = asyncio.get_running_loop()
        stream = asyncio.StreamReader()
        # The file object owns the descriptor from here on: the transport closes it.
        pipe = os.fdopen(self._read_fd, "rb", buffering=0)
        self._read_fd = -1
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        try:
            while line := await stream.readline():
                report = _parse_report(line)
                if report is not None:
                    yield report
        except ValueError:
            log.warning("a run's process sent a line without end; its reports are not read any more")
        finally:
            transport.close()

    def close(self) -> None:
        """Closes the service's ends; a process that still lives then ends itself."""
        if not self._closed:
            self._closed = True
            os.close(self._write_fd)
            if self._read_fd >= 0:
                os.close(self._read_fd)

    def _send(self, command: dict[str, Any]) -> None:
        if self._closed:
            return
        try:
            os.write(self._write_fd, _line(command))  # shorter than PIPE_BUF, hence whole or not at all
        except (BrokenPipeError, BlockingIOError) as error:
            log.warning("a run's process takes no commands", command=command["command"], error=str(error))


def _parse_report(line: bytes) -> RunReport | None:
    try:
        values = json.loads(line)
        report = RunReport(
            sequence=int(values["sequence"]),
            step=int(values["step"]),
            total_steps=int(values["total_steps"]),
            status_detail=str(values["status_detail"]),
        )
        # One that the wire cannot carry would fail every listing of the runs, and not this run alone.
        if not all(0 <= n < 2**63 for n in (report.sequence, report.step, report.total_steps)):
            raise ValueError("a number is out of range")
        return report
    except (ValueError, OverflowError, KeyError, TypeError):
        log.warning(
            "a run's process sent a line that is no report", line=line[:200].decode("utf-8", "replace")
        )
        return None


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values).encode("ascii") + b"\n"


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""  # a pipe that cannot be read is closed


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
