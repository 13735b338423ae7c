"""Commands that are imported when they are called, so that `plaudit --help` need not load gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from plaudit.cli._faults import ToldAtOnce


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command or a group of commands: what the list of commands says, and where it lies.

    `attribute` of `plaudit.cli.{module}` is a Typer app, or the function of a command.
    """

    module: str
    attribute: str
    help: str


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """A group that also has `commands`, each of which is imported only where it is called."""

    class _LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:  # typer hands over what it parsed from the app
            super().__init__(**settings)
            own = dict(self.commands)
            self.commands = {
                name: TyperCommand(name, help=command.help) for name, command in commands.items()
            }
            self.commands.update(own)

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in commands:
                command = _loaded(name, commands[name])
            return name, command, rest

    return _LazyGroup


def _loaded(name: str, command: LazyCommand) -> Any:
    found: typer.Typer | Callable[..., Any] = getattr(
        import_module(f"{_PACKAGE}.{command.module}"), command.attribute
    )
    loaded: Any
    if isinstance(found, typer.Typer):
        for registered in found.registered_commands:
            registered.cls = ToldAtOnce
        loaded = get_group(found)
    else:
        app = typer.Typer(add_completion=False)
        app.command(name, cls=ToldAtOnce)(found)
        loaded = get_command(app)
    loaded.name = name
    # Here, and not at every command: a list of them can be read, and a test sees that none is missing.
    from plaudit.cli._examples import EXAMPLES

    _add_examples(loaded, name, EXAMPLES)
    return loaded


def _add_examples(command: Any, path: str, examples: Mapping[str, str]) -> None:
    if path in examples:
        command.epilog = f"Example: {examples[path]}"
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            _add_examples(inner, f"{path} {name}", examples)


_PACKAGE: Final = "plaudit.cli"
