"""`plaudit token`: create, list, revoke, audit."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    cell,
    connect,
    plain,
    print_fields,
    print_json,
    print_table,
)
from plaudit.errors import FailedPreconditionError
from plaudit.types.roles import Role
from plaudit.types.texts import shown

app = typer.Typer(help="Tokens of those who may call the gateway.", no_args_is_help=True)

_SECONDS: Final = 60.0
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _time(text: str) -> datetime:
    """A duration from now, or a time; without an offset it is local."""
    unit = _UNITS.get(text[-1:])
    if unit is not None and text[:-1].isascii() and text[:-1].isdecimal() and len(text) <= 6:
        return datetime.now(UTC) + int(text[:-1]) * unit
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{shown(text)} is refused; say 12h, 30d, 4w, or a time as 2030-01-31T12:00"
        ) from None


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Name; what the token makes is marked with it.")],
    role: Annotated[
        Role,
        typer.Option(help="viewer reads, operator works, admin administers, service reads for services."),
    ],
    expires: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME", parser=_time, help="30d, 12h, 4w, or a time as 2030-01-31. Default: never."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Make it in the gateway's data directory, on its machine, without a token: for the first."
        ),
    ] = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Make a token. Its secret is shown once: the gateway keeps a hash."""
    if data_dir is not None:
        made = _create_in(data_dir, name, role, expires)
    else:
        with connect(address) as client:
            new = client.tokens.create(name, role, expires_at=expires)
        made = {**plain(new.token), "secret": new.secret}
    if as_json:
        print_json(made)
        return
    print_fields({"token": made["name"], "role": made["role"], "expires": made["expires_at"] or "never"})
    typer.echo(f"secret  {made['secret']}")
    typer.echo(
        "This secret is not shown again. Keep it in a file of mode 0600 (PLAUDIT_TOKEN_FILE), or in "
        "PLAUDIT_TOKEN.",
        err=True,
    )


@app.command("list")
def list_tokens(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """List tokens, newest first."""
    with connect(address) as client:
        found = client.tokens.list()
    if as_json:
        print_json(found)
        return
    print_table(
        ("token", "name", "role", "created", "by", "expires", "last used"),
        (
            (
                t.id,
                t.name,
                t.role,
                t.created_at,
                t.created_by,
                t.expires_at or "never",
                t.last_used_at or "never",
            )
            for t in found
        ),
    )


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Name or id of the token.")],
    address: AddressOption = None,
) -> None:
    """Forget a token: its calls are refused from now on, and what it has open ends."""
    with connect(address) as client:
        client.tokens.revoke(token)
    typer.echo(f"{token} is revoked")


@app.command()
def show(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Show who this client is to the gateway."""
    with connect(address) as client:
        caller = client.tokens.caller()
    if as_json:
        print_json(caller)
    else:
        print_fields({"name": caller.name, "role": caller.role, "token": caller.token_id})


@app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, help="Most entries to show.")] = 50,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """List calls that changed something or were not allowed to, newest first."""
    with connect(address) as client:
        found = list(islice(client.tokens.audit(), limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ("time", "caller", "role", "from", "call", "about", "outcome"),
        ((cell(e.time), e.caller, e.role, e.peer, e.call, e.subject, e.outcome) for e in found),
    )


def _create_in(data_dir: Path, name: str, role: Role, expires_at: datetime | None) -> dict[str, str | None]:
    """Asks the gateway's own code on this machine, as the command line does not import services."""
    options = ["--data-dir", str(data_dir), "--name", name, "--role", role.value]
    if expires_at is not None:
        options += ["--expires-at", expires_at.isoformat()]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gateway.access", *options],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FailedPreconditionError(
            f"the store in {data_dir} was busy for {_SECONDS:g} s; try again"
        ) from None
    if done.returncode != 0:
        raise FailedPreconditionError(f"the token was not made: {done.stderr.strip()[-2000:]}")
    made: dict[str, str | None] = json.loads(done.stdout)
    return made
