"""`python -m reward_service`: the built-in reward server."""

from __future__ import annotations

import sys
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
    die_with_stdin: Annotated[bool, typer.Option(help="Exit when stdin is closed.")] = False,
) -> None:
    """Serves the built-in rewards by plaudit.reward.v1."""
    try:
        settings = RewardSettings.load(address=address)
    except PlauditError as error:
        sys.stderr.write(f"error: {error.message}\n")
        raise typer.Exit(2) from None
    configure_logging("reward", settings.log_level)
    raise typer.Exit(run_service(lambda stop: serve_builtin(settings, stop), die_with_stdin=die_with_stdin))


if __name__ == "__main__":
    typer.run(main)
