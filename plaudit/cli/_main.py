"""Puts the command together, and turns errors into messages and exit statuses."""

from __future__ import annotations

import sys
from typing import Final

import stamina
import typer

from plaudit import __version__, errors
from plaudit.cli import dataset, demo, job, reward, reward_server, up
from plaudit.cli._output import printable

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_AUTH: Final = 4
EXIT_UNAVAILABLE: Final = 5

_EXIT_STATUS: Final[tuple[tuple[type[errors.PlauditError], int], ...]] = (
    (errors.InvalidArgumentError, EXIT_USAGE),
    (errors.NotFoundError, EXIT_NOT_FOUND),
    (errors.UnauthenticatedError, EXIT_AUTH),
    (errors.PermissionDeniedError, EXIT_AUTH),
    (errors.UnavailableError, EXIT_UNAVAILABLE),
    (errors.DeadlineExceededError, EXIT_UNAVAILABLE),
)

app = typer.Typer(
    name="plaudit",
    help="GRPO post-training of language models, with the reward in a server of your own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(job.app, name="job")
app.add_typer(dataset.app, name="dataset")
app.add_typer(reward_server.app, name="reward-server")
app.add_typer(reward.app, name="reward")
app.command("up")(up.up)
app.command("demo")(demo.demo)


@app.command("version")
def version() -> None:
    """Prints the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point.

    Exit status: 0 done, 1 failed, 2 usage, 3 not found, 4 auth, 5 unavailable, 130 interrupted.
    """
    # Repeated calls are no news to a person at a terminal; the last failure is told.
    stamina.instrumentation.set_on_retry_hooks([])
    try:
        app()
    except errors.PlauditError as error:
        sys.stderr.write(_message(error))
        sys.exit(next((status for cls, status in _EXIT_STATUS if isinstance(error, cls)), EXIT_FAILED))
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; nothing is wrong, and nobody is left to tell.
        sys.stderr.close()


def _message(error: errors.PlauditError) -> str:
    if isinstance(error, errors.InvalidArgumentError):
        lines = [f"  {violation.field}: {violation.message}" for violation in error.violations]
        count = f"{len(lines)} fields are wrong" if len(lines) != 1 else "1 field is wrong"
        return printable("\n".join([f"error: {count}", *lines])) + "\n"
    return f"error: {printable(error.message)}\n"
