"""`python -m reward_service`: the built-in reward server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plaudit.errors import PlauditError
from plaudit.service import configure_logging, run_service
from reward_service.server import serve_builtin
from reward_service.settings import RewardSettings


def main(
    address: Annotated[
        str | None, typer.Option(help="host:port to listen on; port 0 takes a free one.", show_default=False)
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate with its chain, PEM: speak TLS.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Its private key, PEM, mode 0600.", show_default=False)
    ] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="Let in whose certificate this CA signs, PEM.", show_default=False)
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Let in who sends one of its tokens, mode 0600.", show_default=False)
    ] = None,
    plaintext: Annotated[
        bool | None,
        typer.Option(
            "--plaintext", help="No TLS beyond this machine: a proxy speaks it.", show_default=False
        ),
    ] = None,
    die_with_stdin: Annotated[bool, typer.Option(help="Exit when stdin is closed.")] = False,
) -> None:
    """Serves the built-in rewards by plaudit.reward.v1."""
    try:
        given = {
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "client_ca": client_ca,
            "token_file": token_file,
            "plaintext": plaintext,
        }
        security = {name: value for name, value in given.items() if value is not None}
        settings = RewardSettings.load(address=address, security=security or None)
    except PlauditError as error:
        sys.stderr.write(f"error: {error.message}\n")
        raise typer.Exit(2) from None
    configure_logging("reward", settings.log_level)
    raise typer.Exit(run_service(lambda stop: serve_builtin(settings, stop), die_with_stdin=die_with_stdin))


if __name__ == "__main__":
    typer.run(main)
