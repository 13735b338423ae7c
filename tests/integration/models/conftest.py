"""What other areas' tests have at hand: a gateway's edges, a scripted trainer, a run in this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

for area in ("gateway_core", "gateway_edges", "training"):
    sys.path.append(str(Path(__file__).parents[1] / area))
