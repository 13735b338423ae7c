"""A gateway process with a scripted trainer: what tests/integration/gateway_core has."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "gateway_core"))
