"""How much memory a process and all that came of it have."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants; what they share counts for each of them.

    Descendants whose parents have ended are found too, where the process is the first of a namespace.
    """
    total = 0
    left = [pid]
    while left:
        folder = Path("/proc", str(left.pop()))
        with contextlib.suppress(OSError, ValueError, IndexError):  # it may end meanwhile
            total += int((folder / "statm").read_text().split()[1]) * _PAGE_BYTES
            for task in (folder / "task").iterdir():
                left.extend(map(int, (task / "children").read_text().split()))
    return total
