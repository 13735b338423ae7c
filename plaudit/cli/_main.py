"""Puts the command together, and turns errors into messages and exit statuses."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from plaudit import __version__, errors
from plaudit.cli._lazy import LazyCommand, lazy_group

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

_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a file or a disk says that takes no more."""

COMMANDS: Final = {
    "job": LazyCommand("job", "app", "Training jobs."),
    "dataset": LazyCommand("dataset", "app", "Datasets."),
    "reward-server": LazyCommand("reward_server", "app", "Reward servers."),
    "reward-function": LazyCommand("reward_function", "app", "Reward functions."),
    "reward": LazyCommand("reward", "app", "Rewards on offer."),
    "rescore": LazyCommand("rescore", "app", "Rescores: stored completions of a job, scored again."),
    "model": LazyCommand("model", "app", "Trained models: list, export, download, talk to."),
    "token": LazyCommand("token", "app", "Tokens of those who may call the gateway."),
    "certs": LazyCommand("certs", "app", "Certificates of a private network."),
    "init": LazyCommand(
        "init",
        "init",
        "Write a job file with every field explained, sample rows, and a reward function to begin with.",
    ),
    "doctor": LazyCommand(
        "doctor", "doctor", "Check this machine and the gateway: what is good, what is not, and the way out."
    ),
    "up": LazyCommand(
        "up",
        "up",
        "Run gateway, trainer and built-in reward server until interrupted; what dies is started again.",
    ),
    "demo": LazyCommand(
        "demo",
        "demo",
        "Teach a tiny model, live: three services on free ports, a reward in another process, a curve.",
    ),
}
"""What is loaded when it is called, with what its own help begins with."""

app = typer.Typer(
    name="plaudit",
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def plaudit(
    token_file: Annotated[
        Path | None,
        typer.Option(help="File of the token for the gateway, mode 0600. Default: PLAUDIT_TOKEN_FILE."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS with the gateway. Default: PLAUDIT_TLS.")
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option(help="Speak TLS, by the CAs of this file, PEM. Default: PLAUDIT_CA_FILE."),
    ] = None,
) -> None:
    """GRPO post-training of language models, with the reward in a server of your own."""
    # An option is another way to write its variable, which is where the client looks.
    if token_file is not None:
        os.environ.pop("PLAUDIT_TOKEN", None)
        os.environ["PLAUDIT_TOKEN_FILE"] = str(token_file)
    if tls:
        os.environ["PLAUDIT_TLS"] = "true"
    if ca_file is not None:
        os.environ["PLAUDIT_CA_FILE"] = str(ca_file)


@app.command("version", epilog="Example: plaudit version")
def version() -> None:
    """Prints the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point.

    Exit status: 0 done, 1 failed, 2 usage, 3 not found, 4 auth, 5 unavailable, 130 interrupted.
    """
    try:
        try:
            app()
        except errors.PlauditError as error:
            sys.stderr.write(_message(error))
            sys.exit(next((status for cls, status in _EXIT_STATUS if isinstance(error, cls)), EXIT_FAILED))
        finally:
            # Here, and not when Python ends, where it could not be told that it fails.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; nothing is wrong, and nobody is left to tell.
        sys.stderr.close()
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        sys.stderr.write(f"error: the output cannot be written ({error.strerror}); make room for it\n")
        # What is still in its buffer would be tried again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


def _message(error: errors.PlauditError) -> str:
    # Where nothing goes wrong, the tables and pages of this module are not needed yet.
    from plaudit.cli._output import printable

    if isinstance(error, errors.InvalidArgumentError):
        lines = [f"  {violation.field}: {violation.message}" for violation in error.violations]
        count = f"{len(lines)} fields are wrong" if len(lines) != 1 else "1 field is wrong"
        return printable("\n".join([f"error: {count}", *lines])) + "\n"
    return f"error: {printable(error.message)}\n"
