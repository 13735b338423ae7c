"""`plaudit reward-server`: add, list, get, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from plaudit.cli._arguments import ServerId
from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    cell,
    connect,
    print_fields,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from plaudit.client import models

app = typer.Typer(help="Reward servers.", no_args_is_help=True)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name under which jobs use it.")],
    addresses: Annotated[
        list[str], typer.Argument(metavar="HOST:PORT...", help="Where its replicas listen.")
    ],
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS, by the CAs of the machine.")] = False,
    ca: Annotated[str, typer.Option(metavar="NAME", help="Speak TLS, by the CA {NAME}.ca.pem.")] = "",
    client_certificate: Annotated[
        str, typer.Option(metavar="NAME", help="Show it {NAME}.cert.pem with {NAME}.key.pem.")
    ] = "",
    server_name: Annotated[
        str, typer.Option(metavar="HOST", help="Name in its certificate. Default: the host of its address.")
    ] = "",
    credential: Annotated[
        str,
        typer.Option(metavar="NAME", help="Send the token PLAUDIT_CREDENTIAL_{NAME}, or of the file {NAME}."),
    ] = "",
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="Let the token travel in plain text, as to a proxy of TLS.")
    ] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Register a reward server; it need not be up yet.

    Secrets are named, never sent: gateway and trainers each have them in their own environment or secrets
    folder.
    """
    given = {"ca": ca, "client_certificate": client_certificate, "server_name": server_name}
    named = {field: value for field, value in given.items() if value}
    with connect(address) as client:
        server = client.reward_servers.create(
            name,
            addresses,
            tls=named if tls or named else None,
            credential=credential,
            plaintext=plaintext,
        )
    _print(server, as_json)


@app.command("list")
def list_servers(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """List reward servers, each replica as it answers now."""
    with connect(address) as client:
        found = client.reward_servers.list()
    if as_json:
        print_json(found)
        return
    print_table(
        ("server", "replica", "state", "since", "checked", "latency", "version", "why not"),
        (
            (
                server.name,
                replica.address,
                _state(replica),
                replica.since,
                replica.checked_at,
                _latency(replica),
                replica.server_version,
                replica.reason,
            )
            for server in found
            for replica in server.replicas
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


def _state(replica: models.RewardServerReplica) -> str:
    return replica.state.value.replace("_", " ")


def _latency(replica: models.RewardServerReplica) -> str:
    return "" if replica.latency_seconds is None else f"{replica.latency_seconds * 1000:.0f} ms"


def _let_in(server: models.RewardServer) -> str:
    """How it is spoken to, by the names of secrets."""
    access = server.access
    words = ["plain text" if access.tls is None else "TLS"]
    if access.tls is not None:
        words += [f"CA {access.tls.ca}"] if access.tls.ca else []
        words += [f"certificate {access.tls.client_certificate}"] if access.tls.client_certificate else []
        words += [f"as {access.tls.server_name}"] if access.tls.server_name else []
    words += [f"credential {access.credential}"] if access.credential else []
    return ", ".join(words)


def _print(server: models.RewardServer, as_json: bool) -> None:
    if as_json:
        print_json(server)
        return
    print_fields(
        {
            "server": server.name,
            "id": server.id,
            "addresses": ", ".join(server.addresses),
            "spoken to": _let_in(server),
            "answers": "yes" if server.reachable else f"no: {server.unreachable_reason}",
            "version": server.server_version,
            "rewards": ", ".join(reward.name for reward in server.rewards),
        }
    )
    for replica in server.replicas:
        why = f": {replica.reason}" if replica.reason else ""
        print_fields(
            {
                "replica": f"{replica.address} {_state(replica)} since {cell(replica.since)}, checked "
                f"{cell(replica.checked_at)}{why}"
            }
        )
    for warning in server.warnings:
        print_fields({"warning": warning})
