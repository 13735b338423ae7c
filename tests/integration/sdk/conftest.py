"""A gateway with its reward server and no trainer, so that jobs stay queued until somebody steers them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sdk_gateway import start_without_trainer
from stack import Stack

from plaudit.cli import main


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(Path(tmp_path_factory.mktemp("sdk")))
    try:
        start_without_trainer(stack, {})
        yield stack
    finally:
        stack.stop()


Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(
    gateway: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Cli:
    """Runs the command line in this process: exit status, stdout, stderr."""
    monkeypatch.setenv("PLAUDIT_ADDRESS", gateway.grpc_address)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["plaudit", *arguments])
        capsys.readouterr()
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        told = capsys.readouterr()
        return status, told.out, told.err

    return run
