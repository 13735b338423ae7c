"""Trace ids: one for each step, so that what a server logs about a step's batches can be found by it.

https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import hashlib
from functools import lru_cache


@lru_cache(maxsize=64)
def trace_id(session_scope: str, step: int) -> str:
    """Of a step of a run: the same on every reconnect and for every server. 32 hexadecimal digits."""
    return hashlib.sha256(f"{session_scope}/{step}".encode()).hexdigest()[:32]


def traceparent(trace: str, batch_id: str) -> str:
    """The W3C header of a batch, whose span id is made of its id, a UUID."""
    return f"00-{trace}-{batch_id.replace('-', '')[-16:]}-01"
