"""Makes the raw Score conversation importable, which tests of the reward service speak too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration/reward_service"))
