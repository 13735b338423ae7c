"""`python -m gateway`: the gateway as a process."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gateway.server import serve
from gateway.settings import GatewaySettings
from plaudit.errors import PlauditError
from plaudit.service import configure_logging, run_service


def main() -> int:
    """Reads options and settings, serves, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gateway", description="Runs jobs, and tells of them.")
    parser.add_argument("--grpc-address", help="host:port of the gRPC API; port 0 takes a free one")
    parser.add_argument("--http-address", help="host:port of the REST API; port 0 takes a free one")
    parser.add_argument("--data-dir", type=Path, help="folder of all state on this machine")
    parser.add_argument("--artifact-root", type=Path, help="folder of datasets, checkpoints, completions")
    parser.add_argument(
        "--trainer", action="append", dest="trainers", help="host:port of a trainer; may be repeated"
    )
    parser.add_argument("--die-with-stdin", action="store_true", help="end when stdin is closed")
    options = vars(parser.parse_args())
    die_with_stdin: bool = options.pop("die_with_stdin")
    try:
        settings = GatewaySettings.load(**options)
    except PlauditError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 1
    configure_logging("gateway", settings.log_level)
    return run_service(lambda stop: serve(settings, stop), die_with_stdin=die_with_stdin)


if __name__ == "__main__":
    sys.exit(main())
