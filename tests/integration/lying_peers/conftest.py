"""The helpers of the neighbours: scripted reward servers, and runs of the trainer."""

from __future__ import annotations

import sys
from pathlib import Path

for area in ("scoring", "training"):
    sys.path.insert(0, str(Path(__file__).parents[1] / area))

from scoring_fixtures import make_scorer, serve, serve_process  # noqa: E402

__all__ = ["make_scorer", "serve", "serve_process"]
