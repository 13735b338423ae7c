"""Makes the modules of benchmarks/ importable, as they are where a benchmark runs."""

import sys
from pathlib import Path

_ROOT = Path(__file__).parents[3]

# The root before them: a benchmark may have the name of the package that it measures.
sys.path[:0] = [str(_ROOT), str(_ROOT / "benchmarks")]
