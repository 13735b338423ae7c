"""Commands are loaded when they are called, and the list of commands says what they say themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from plaudit.cli._lazy import _loaded
from plaudit.cli._main import COMMANDS, app

HEAVY = ("grpc", "google.protobuf", "pydantic", "structlog")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_list_says_what_the_command_says(name: str) -> None:
    loaded = _loaded(name, COMMANDS[name])
    assert loaded.name == name
    assert loaded.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name].help


def test_help_loads_no_heavy_module() -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom plaudit.cli._main import app\n"
        "result = CliRunner().invoke(app, ['--help'])\nassert result.exit_code == 0, result.output\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_commands_of_a_group_are_found() -> None:
    result = CliRunner().invoke(app, ["job", "--help"])
    assert result.exit_code == 0
    assert "submit" in result.output
    unknown = CliRunner().invoke(app, ["jib"])
    assert unknown.exit_code == 2
    assert "Did you mean 'job'?" in unknown.output
