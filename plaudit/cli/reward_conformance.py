"""`plaudit reward conformance`: whether a server honours the contract."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import typer

CONTEXT_SETTINGS: Final = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    # The suite's own help lists its options.
    "help_option_names": [],
}


def conformance(context: typer.Context) -> None:
    """Run every rule of the contract against a live reward server, in any language."""
    command = [sys.executable, "-m", "reward_service.conformance", *context.args]
    # What a broken server does to the connection is in the report; gRPC's own log lines would stand between.
    environment = {"GRPC_VERBOSITY": "NONE"} | os.environ
    try:
        status = subprocess.run(command, check=False, env=environment).returncode
    except KeyboardInterrupt:
        status = 130
    raise typer.Exit(status)
