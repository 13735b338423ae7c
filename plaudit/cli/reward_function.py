"""`plaudit reward-function`: upload, list, get, delete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    connect,
    print_fields,
    print_json,
    print_table,
    printable,
)

if TYPE_CHECKING:
    from plaudit.client import models

app = typer.Typer(help="Reward functions.", no_args_is_help=True)

FunctionId = Annotated[str, typer.Argument(metavar="FUNCTION", help="Id or name of the reward function.")]


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(help="Python file with a function that scores.")],
    name: Annotated[
        str | None, typer.Option(help="Name. Default: the file's name without its ending.")
    ] = None,
    file_format: Annotated[
        str, typer.Option("--format", metavar="trl|miles", help="How the function is called.")
    ] = "trl",
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Upload a file; jobs name it in reward_function_id."""
    with connect(address) as client:
        _print(client.reward_functions.upload(file, name=name, file_format=file_format), as_json)


@app.command("list")
def list_functions(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """List reward functions, newest first."""
    with connect(address) as client:
        found = list(client.reward_functions.list())
    if as_json:
        print_json(found)
        return
    print_table(
        ("function", "name", "format", "bytes", "created"),
        ((f.id, f.name, f.format, f.size_bytes, f.created_at) for f in found),
    )


@app.command()
def get(
    function_id: FunctionId,
    source: Annotated[bool, typer.Option("--source", help="Print the source alone.")] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Show a reward function; of several with one name, the newest."""
    with connect(address) as client:
        function = client.reward_functions.get(function_id)
    if source:
        typer.echo(printable(function.source), nl=not function.source.endswith("\n"))
    else:
        _print(function, as_json)


@app.command()
def delete(function_id: FunctionId, address: AddressOption = None) -> None:
    """Delete a reward function; jobs that named it have its source."""
    with connect(address) as client:
        client.reward_functions.delete(function_id)
    typer.echo(printable(f"{function_id} is deleted"))


def _print(function: models.RewardFunction, as_json: bool) -> None:
    if as_json:
        print_json(function)
        return
    print_fields(
        {
            "function": function.id,
            "name": function.name,
            "format": function.format,
            "file": function.filename,
            "bytes": function.size_bytes,
            "created": function.created_at,
        }
    )
