"""Ids that sort by age."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_last = 0


def new_id(prefix: str) -> str:
    """`prefix`, "_" and a ULID: 26 characters, and ids of one process sort in the order of their making."""
    global _last
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    # Two in one millisecond, or a clock that was set back, must not swap their order.
    _last = value if value > _last else _last + 1
    return f"{prefix}_{''.join(_ALPHABET[_last >> shift & 31] for shift in range(125, -5, -5))}"
