"""`python -m trainer_service`: the trainer service as a process."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from plaudit.errors import PlauditError
from plaudit.service import configure_logging, run_service
from trainer_service.launchers.local import LocalLauncher
from trainer_service.server import serve
from trainer_service.settings import TrainerSettings


def main() -> int:
    """Reads options and settings, serves, and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer_service", description="Trains what a gateway asks."
    )
    parser.add_argument("--address", help="host:port to listen on; port 0 takes a free one")
    parser.add_argument("--data-dir", type=Path, help="folder of all state on this machine")
    parser.add_argument("--artifact-root", type=Path, help="folder of datasets, checkpoints, completions")
    parser.add_argument("--max-concurrent-runs", type=int, help="runs that are held at once")
    parser.add_argument("--die-with-stdin", action="store_true", help="end when stdin is closed")
    options = vars(parser.parse_args())
    die_with_stdin: bool = options.pop("die_with_stdin")
    try:
        settings = TrainerSettings.load(**options)
    except PlauditError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 1
    configure_logging("trainer", settings.log_level)

    async def serve_runs(stop: asyncio.Event) -> None:
        await serve(settings, LocalLauncher(unsloth_interpreter=settings.unsloth_python), stop)

    return run_service(serve_runs, die_with_stdin=die_with_stdin)


if __name__ == "__main__":
    sys.exit(main())
