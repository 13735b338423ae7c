"""Makes the modules of benchmarks/ importable, as they are where a benchmark runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
