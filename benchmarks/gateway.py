"""The gateway at scale: a thinned series out of a million points, and a thousand watchers of one job.

    make bench BENCH=gateway
    .venv/bin/python benchmarks/gateway.py --quick
    .venv/bin/python benchmarks/gateway.py --part watchers

docs/benchmarks.md says what is measured and how to read the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

# This file has the name of the package that it measures, which must be found first.
sys.path.insert(0, str(Path(__file__).parents[1]))

from gateway_load.series import series_figures
from gateway_load.watching import watcher_figures
from harness import Figure, ProgramFailedError, emit

from plaudit.service import configure_logging

PARTS = ("series", "watchers")


def main() -> None:
    """Runs the parts and prints their figures."""
    parser = argparse.ArgumentParser(description="Metric series and watchers of the gateway.")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: to see that it runs")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    options = parser.parse_args()
    configure_logging("benchmark", "warning")
    try:
        asyncio.run(_print(options.part or PARTS, scale=0.1 if options.quick else 1.0))
    except ProgramFailedError as error:
        sys.exit(str(error))


async def _print(parts: tuple[str, ...], scale: float) -> None:
    with tempfile.TemporaryDirectory(prefix="plaudit-gateway-") as name:
        if "series" in parts:
            await _emit(series_figures(Path(name) / "series", scale))
        if "watchers" in parts:
            await _emit(watcher_figures(Path(name) / "watchers", scale))


async def _emit(figures: AsyncIterator[Figure]) -> None:
    async for figure in figures:
        emit(figure)


if __name__ == "__main__":
    main()
