"""No process of ours is forked, and none interrupts itself by a signal: gRPC's threads survive neither."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("plaudit", "reward_service", "trainer_service", "gateway")
MODULES = {"multiprocessing", "billiard", "pty"}
NAMES = {
    # What is forked holds locks of threads that it does not have.
    "fork", "forkpty", "preexec_fn", "ProcessPoolExecutor", "num_proc",
    # Works in the main thread alone; where it raises in another one, `except` makes a score of it.
    "alarm", "setitimer",
    # Waits for a program where an event loop should go on.
    "system", "popen", "check_output", "check_call", "getoutput", "subprocess.run",
}  # fmt: skip
COMMANDS = "plaudit/cli/"
"""A command is a process of its own, with one thing to do: it may wait for a program that it runs."""


def faults_in(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of everything that forks or alarms."""
    if not any(word.rpartition(".")[2] in source for word in MODULES | NAMES):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                found = {alias.name.partition(".")[0] for alias in aliases} & MODULES
            case ast.ImportFrom(module=str(module), names=aliases):
                found = {module.partition(".")[0]} & MODULES | {alias.name for alias in aliases} & NAMES
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                found = {name} & NAMES if owner in ("os", "signal", "subprocess", "futures") else set()
                found |= {f"{owner}.{name}"} & NAMES
            case ast.keyword(arg=str(name)):
                found = {name} & NAMES
            case _:
                continue
        for name in sorted(found):
            yield node.lineno, name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_code_of_ours_forks_or_alarms(package: str) -> None:
    files = [path for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name]
    assert files
    found = [
        (path.relative_to(ROOT).as_posix(), line, name)
        for path in files
        for line, name in faults_in(path.read_text("utf-8"))
    ]
    assert [one for one in found if not (one[0].startswith(COMMANDS) and one[2] == "subprocess.run")] == []


@pytest.mark.parametrize(
    "source",
    [
        "import multiprocessing as mp",
        "from multiprocessing.pool import Pool",
        "from concurrent.futures import ProcessPoolExecutor",
        "import os\nos.fork()",
        "import signal\nsignal.alarm(1)",
        "import subprocess\nsubprocess.Popen(['x'], preexec_fn=print)",
        "import subprocess\nsubprocess.run(['echo'])",
        "dataset.map(tokenize, num_proc=4)",
    ],
)
def test_what_forks_or_alarms_is_found(source: str) -> None:
    assert list(faults_in(source))
