"""Commands are loaded when they are called, and the list of commands says what they say themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from plaudit.cli._lazy import _loaded
from plaudit.cli._main import COMMANDS, app

HEAVY = ("grpc", "google.protobuf", "pydantic_settings", "structlog", "plaudit.types.jobs")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_list_says_what_the_command_says(name: str) -> None:
    loaded = _loaded(name, COMMANDS[name])
    assert loaded.name == name
    assert loaded.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name].help


def test_no_help_loads_a_heavy_module() -> None:
    commands = [[]]
    for name, command in COMMANDS.items():
        inner = getattr(_loaded(name, command), "commands", {})
        # The conformance suite is a program of its own, which prints its own help.
        commands += [[name], *([name, each] for each in inner if each != "conformance")]
    assert ["job", "submit"] in commands
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom plaudit.cli._main import app\n"
        f"for command in {commands!r}:\n"
        "    result = CliRunner().invoke(app, [*command, '--help'])\n"
        "    assert result.exit_code == 0 and 'Usage: ' in result.output, (command, result.output)\n"
        f"    loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not loaded, (command, loaded)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_commands_of_a_group_are_found() -> None:
    result = CliRunner().invoke(app, ["job", "--help"])
    assert result.exit_code == 0
    assert "submit" in result.output
    unknown = CliRunner().invoke(app, ["jib"])
    assert unknown.exit_code == 2
    assert "Did you mean 'job'?" in unknown.output
