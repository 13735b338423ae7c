"""How a process of training loads torch and its kin: with a good third of the work left out.

`lighten` comes before the first of them is imported, and `loaded` after the last.
"""

from __future__ import annotations

import gc
import sys

from plaudit.types.jobs import RunSpec


def lighten(spec: RunSpec) -> None:
    """Leaves out of this process, for good, what `spec` does not need; collects no garbage until `loaded`.

    Hardly anything that an import makes is garbage, and a seventh of its time would go into looking for it.
    """
    gc.disable()
    asked = spec.hyperparameters
    four_bits = asked.load_in_4bit or any(init.on_four_bits for init in spec.init_checkpoints)
    if not four_bits and not asked.use_unsloth:
        # To Python there is none, then. peft loads it wherever it is installed, which takes a second.
        sys.modules["bitsandbytes"] = None  # type: ignore[assignment]


def loaded() -> None:
    """Collects garbage again, after `lighten`; what is loaded stays, and is never looked at again."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
