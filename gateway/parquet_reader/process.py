"""The program: reads the Parquet file that it was given open, and writes what it finds to stdout."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import Final

MAX_MEMORY_BYTES: Final = 4 * 1000**3
"""Most that the process may hold, as of the process that reads from the hub."""
_STDERR_BYTES: Final = 64 * 1024
_PR_SET_PDEATHSIG: Final = 1


def run(file_descriptor: int, max_row_bytes: int, parent: int) -> int:
    """Reads, writes `gateway.parquet_reader.protocol`, and returns the exit status. Ends with `parent`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    bound = MAX_MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Python would not notice that a compiled module which it stores is cut off, and everybody would load it.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (_STDERR_BYTES, _STDERR_BYTES))

    from gateway.parquet_reader._lines import blocks
    from gateway.parquet_reader.protocol import READY

    with os.fdopen(file_descriptor, "rb") as file, os.fdopen(1, "wb", closefd=False) as out:
        out.write(READY + b"null\n")
        out.flush()
        for block in blocks(file, max_row_bytes):
            out.write(block)
            # Arrow may need its time for what follows, or end the process.
            out.flush()
    return 0
