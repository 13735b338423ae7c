"""Every command has an example, which its own parser takes."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from plaudit.cli._examples import EXAMPLES
from plaudit.cli._lazy import _loaded
from plaudit.cli._main import COMMANDS, app


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


@functools.cache
def every_command() -> dict[str, Any]:
    found = {
        path: command
        for name, lazy in COMMANDS.items()
        for path, command in commands(_loaded(name, lazy), name)
    }
    own = typer.main.get_command(app).commands
    return found | {name: command for name, command in own.items() if name not in COMMANDS}


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    assert set(EXAMPLES) == set(every_command())


@pytest.mark.parametrize("path", sorted(EXAMPLES))
def test_the_help_ends_with_an_example_that_is_parsed(path: str) -> None:
    command = every_command()[path]
    assert command.epilog == f"Example: {EXAMPLES[path]}"
    words = shlex.split(EXAMPLES[path])
    assert words[: 1 + len(path.split())] == ["plaudit", *path.split()]
    command.make_context(path, words[1 + len(path.split()) :], resilient_parsing=False)
