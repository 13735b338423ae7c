"""Processes of a benchmark: a program that runs to its end, a server, sides of which one works at a time.

Each writes its stderr to a log, whose end is shown where it fails; stdout carries lines of JSON to us. All of
them end with the benchmark.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

Turn = dict[str, Any]

_START_SECONDS: Final = 180.0
"""For loading libraries and model on a machine with other things to do."""

_TURN_SECONDS: Final = 180.0
_END_SECONDS: Final = 30.0
_LOG_SHOWN: Final = 3000


class ProgramFailedError(Exception):
    """A process died or did not answer in time. The message ends with the end of its log."""


class _Program:
    """A process with lines of JSON on its stdout."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]
    ) -> None:
        """`environment` is all that the process gets of one."""
        self.name = name
        self._log = log
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=dict(environment),
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, line: str) -> None:
        """Writes a line to the process. Raises ProgramFailedError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self.failure("has died") from None

    def hear(self, seconds: float) -> dict[str, Any]:
        """The next thing that the process says. Raises ProgramFailedError."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise self.failure(f"said nothing for {seconds:g} s") from None
        if line is None:
            raise self.failure("has died")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def end(self, patience: float) -> None:
        """Closes the stdin of the process, at which it ends, and kills it if it does not."""
        assert self._process.stdin is not None
        # One that has died has closed the pipe.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def failure(self, what: str) -> ProgramFailedError:
        """An error that says what the process did, and shows its log."""
        return _failure(self.name, what, self._log)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


class Side:
    """One side of a comparison: a process that works only when it is its turn.

    It says `{"event": "ready"}` when it can begin, and then, for every line on its stdin, does one turn (of
    the kind that the line names, as a rule `go`) and says `{"event": "turn", ...}` with what it measured. It
    ends when its stdin closes.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]
    ) -> None:
        """Starts the process; `environment` is all that it gets of one."""
        self.name = name
        self._program = _Program(name, command, log=log, environment=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.end(_END_SECONDS if kind is None else 0.0)

    def await_ready(self) -> Turn:
        """Waits until the side can begin; returns what it said then. Raises ProgramFailedError."""
        return self._hear("ready", _START_SECONDS)

    def take_turn(self, kind: str = "go") -> Turn:
        """Lets the side do one turn and returns what it measured. Raises ProgramFailedError."""
        self._program.say(kind)
        return self._hear("turn", _TURN_SECONDS)

    def _hear(self, event: str, seconds: float) -> Turn:
        heard = self._program.hear(seconds)
        if heard["event"] != event:
            raise self._program.failure(f"said {heard!r} instead of {event}")
        return heard


def take_turns(sides: Sequence[Side], *, warm_up: int, repeats: int) -> dict[str, list[Turn]]:
    """Lets the sides work one after the other, `warm_up` unmeasured rounds and then `repeats` measured ones.

    Returns each side's turns by its name, without the warm-up. Raises ProgramFailedError.
    """
    turns: dict[str, list[Turn]] = {side.name: [] for side in sides}
    for number in range(warm_up + repeats):
        for side in sides:
            turn = side.take_turn()
            if number >= warm_up:
                turns[side.name].append(turn)
    return turns


@contextlib.contextmanager
def serving(
    name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Runs a server that ends with its stdin; yields the line that it says when it listens."""
    server = _Program(name, command, log=log, environment=environment)
    try:
        yield server.hear(_START_SECONDS)
    finally:
        server.end(_END_SECONDS)


def run_program(name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
    """Runs a program to its end. Raises ProgramFailedError."""
    with log.open("w") as output:
        try:
            status = subprocess.run(
                list(command), stdout=output, stderr=output, env=dict(environment), timeout=_START_SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            raise _failure(name, f"did not end in {_START_SECONDS:g} s", log) from None
    if status:
        raise _failure(name, f"ended with status {status}", log)


def _failure(name: str, what: str, log: Path) -> ProgramFailedError:
    text = log.read_text(errors="replace")[-_LOG_SHOWN:]
    return ProgramFailedError(f"{name} {what}; the end of its log:\n{text}")
