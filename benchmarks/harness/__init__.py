"""What every benchmark needs: servers, sides that take turns, and figures as lines of JSON."""

from harness.figures import Figure, Spread, emit, paired_ratio, progress
from harness.processes import ProgramFailedError, Side, Turn, run_program, serving, take_turns

__all__ = [
    "Figure",
    "ProgramFailedError",
    "Side",
    "Spread",
    "Turn",
    "emit",
    "paired_ratio",
    "progress",
    "run_program",
    "serving",
    "take_turns",
]
