"""The reward plane: completions of 2 kB from the trainer's scorer through a kit server, against its rivals.

    make bench BENCH=reward_plane
    .venv/bin/python benchmarks/reward_plane.py --quick
    .venv/bin/python benchmarks/reward_plane.py --part throughput

docs/benchmarks.md says what is compared and how to read the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from harness import (
    Figure,
    ProgramFailedError,
    Side,
    Spread,
    Turn,
    emit,
    paired_ratio,
    progress,
    serving,
    take_turns,
)
from judging import judge_figures
from reward_paths.killing import KILL_EVERY_SECONDS, SERVERS, Losses, score_while_killing

from plaudit.service import configure_logging

BAR = "reward_plane"
COMPLETIONS_TO_LOSE = 131_072

_WARM_UP = 1
_REPEATS = 21
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}


@dataclass(frozen=True, slots=True)
class Rival:
    """A way to the reward that ours is compared with: how many of its completions ours is to score."""

    name: str
    goal: float
    program: Sequence[str]
    server: str
    completions: int
    """In a turn."""


RIVALS = (
    Rival("http", 30.0, ("http_side", "1", "16"), "http_server", completions=512),
    Rival("http_64", 3.0, ("http_side", "64", "4"), "http_server", completions=8_192),
    Rival("echo", 0.5, ("echo_side",), "echo_server", completions=8_192),
)
OUR_COMPLETIONS = 8_192

JUDGE_QUESTIONS = 16_000

PARTS = ("throughput", "losses", "judge")


def main() -> None:
    """Runs the parts and prints their figures."""
    parser = argparse.ArgumentParser(description="Throughput and losses of the reward plane.")
    parser.add_argument("--quick", action="store_true", help="2 repeats, few losses: to see that it runs")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    options = parser.parse_args()
    configure_logging("benchmark")
    parts = options.part or PARTS
    try:
        with tempfile.TemporaryDirectory(prefix="plaudit-reward-plane-") as name:
            folder = Path(name)
            if "throughput" in parts:
                turns = compare(folder, repeats=2 if options.quick else _REPEATS)
                for figure in throughput_figures(turns):
                    emit(figure)
            if "losses" in parts:
                completions = COMPLETIONS_TO_LOSE // (8 if options.quick else 1)
                progress(f"{completions} completions over {SERVERS} servers that are killed")
                for figure in loss_figures(score_while_killing(completions, folder, _ENVIRONMENT)):
                    emit(figure)
            if "judge" in parts:
                questions = JUDGE_QUESTIONS // (20 if options.quick else 1)
                progress(f"{questions} judge questions at once")
                for figure in asyncio.run(judge_figures(questions)):
                    emit(figure)
    except ProgramFailedError as error:
        sys.exit(str(error))


def compare(folder: Path, *, repeats: int) -> dict[str, list[Turn]]:
    """Lets all sides work by turns; returns the measured turns of each. Raises ProgramFailedError."""
    with contextlib.ExitStack() as stack:

        def serve(module: str, *arguments: str) -> str:
            said = stack.enter_context(
                serving(
                    module,
                    [sys.executable, "-m", f"reward_paths.{module}", *arguments],
                    log=folder / f"{module}.log",
                    environment=_ENVIRONMENT,
                )
            )
            return str(said["address"])

        def side(name: str, module: str, server: str, completions: int, *arguments: str) -> Side:
            command = [
                *(sys.executable, "-m", f"reward_paths.{module}"),
                *(addresses[server], str(_pid_of(server)), str(completions), *arguments),
            ]
            return stack.enter_context(
                Side(name, command, log=folder / f"{name}.log", environment=_ENVIRONMENT)
            )

        progress("starting servers and sides")
        addresses = {module: serve(module) for module in dict.fromkeys(rival.server for rival in RIVALS)}
        addresses["kit_server"] = serve("kit_server", "--address", "127.0.0.1:0", "--die-with-stdin")
        sides = [side("ours", "scorer_side", "kit_server", OUR_COMPLETIONS)]
        for rival in RIVALS:
            module, *arguments = rival.program
            sides.append(side(rival.name, module, rival.server, rival.completions, *arguments))
        for one in sides:
            one.await_ready()
        progress(f"{_WARM_UP} + {repeats} turns on each side")
        return take_turns(sides, warm_up=_WARM_UP, repeats=repeats)


def _pid_of(module: str) -> int:
    """Of the server that this process runs from this module."""
    command = ["-m", f"reward_paths.{module}"]
    (server,) = (child for child in psutil.Process().children() if child.cmdline()[1:3] == command)
    return server.pid


def throughput_figures(turns: Mapping[str, Sequence[Turn]]) -> Iterator[Figure]:
    """All figures of the throughput, the ones with a goal first."""
    rates = {name: [float(turn["rate"]) for turn in of_side] for name, of_side in turns.items()}
    for rival in RIVALS:
        ratio = paired_ratio(rates["ours"], rates[rival.name])
        yield Figure(
            bar=f"{BAR}/against_{rival.name}",
            value=ratio.median,
            unit="of the rival's completions a second",
            goal=rival.goal,
            sense="at_least",
            ours=Spread.of(rates["ours"]).median,
            rival=Spread.of(rates[rival.name]).median,
            spread=ratio,
        )
    yield Figure(
        bar=f"{BAR}/wrong",
        value=sum(turn["wrong"] for of_side in turns.values() for turn in of_side),
        unit="completions without their right score",
        goal=0,
    )
    for end in ("client", "server"):
        for name, of_side in turns.items():
            cpu = Spread.of([float(turn[f"{end}_microseconds"]) for turn in of_side])
            yield Figure(
                bar=f"{BAR}/{end}_cpu/{name}",
                value=cpu.median,
                unit=f"processor microseconds of the {end} for a completion",
                spread=cpu,
            )


def loss_figures(losses: Losses) -> Iterator[Figure]:
    """What was lost and doubled, and how hard it was tried."""
    more = {
        "completions": losses.completions,
        "kills": losses.kills,
        "every_seconds": KILL_EVERY_SECONDS,
        "seconds": round(losses.seconds, 1),
        "counters": {name: count for name, count in asdict(losses.counters).items() if count},
    }
    yield Figure(f"{BAR}/lost", losses.lost, "completions without their right score", goal=0, more=more)
    yield Figure(f"{BAR}/doubled", losses.doubled, "completions handed over more than once", goal=0)


if __name__ == "__main__":
    main()
