"""`plaudit reward-server`: add, list, get, remove."""

from __future__ import annotations

from typing import Annotated

import typer

from plaudit.cli._output import AddressOption, JsonOption, connect, print_fields, print_json, print_table
from plaudit.client import models

app = typer.Typer(help="Reward servers.", no_args_is_help=True)

ServerId = Annotated[str, typer.Argument(metavar="SERVER", help="Name or id of the reward server.")]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name under which jobs use it.")],
    addresses: Annotated[
        list[str], typer.Argument(metavar="HOST:PORT...", help="Where its replicas listen.")
    ],
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Register a reward server; it need not be up yet."""
    with connect(address) as client:
        _print(client.reward_servers.create(name, addresses), as_json)


@app.command("list")
def list_servers(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """List reward servers, as they answer now."""
    with connect(address) as client:
        found = client.reward_servers.list()
    if as_json:
        print_json(found)
        return
    print_table(
        ("server", "addresses", "answers", "version", "rewards"),
        (
            (
                s.name,
                ", ".join(s.addresses),
                _answers(s),
                s.server_version,
                ", ".join(r.name for r in s.rewards),
            )
            for s in found
        ),
    )


@app.command()
def get(server: ServerId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Show a reward server, as it answers now."""
    with connect(address) as client:
        _print(client.reward_servers.get(server), as_json)


@app.command()
def remove(server: ServerId, address: AddressOption = None) -> None:
    """Forget a reward server."""
    with connect(address) as client:
        client.reward_servers.delete(server)
    typer.echo(f"{server} is forgotten")


def _answers(server: models.RewardServer) -> str:
    return "yes" if server.reachable else f"no: {server.unreachable_reason}"


def _print(server: models.RewardServer, as_json: bool) -> None:
    if as_json:
        print_json(server)
        return
    print_fields(
        {
            "server": server.name,
            "id": server.id,
            "addresses": ", ".join(server.addresses),
            "answers": _answers(server),
            "version": server.server_version,
            "rewards": ", ".join(reward.name for reward in server.rewards),
        }
    )
