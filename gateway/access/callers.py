"""Who calls: told by the edges, and known to whatever runs on the caller's behalf."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from plaudit.types.roles import Role


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. `token_id` is "" where the gateway asks for no tokens."""

    token_id: str
    name: str
    role: Role
    expires_at: datetime | None = None


LOCAL: Final = Caller("", "local", Role.ADMIN)
"""Everyone on a machine whose gateway asks for no tokens, and the gateway itself."""

_current: ContextVar[Caller] = ContextVar("caller", default=LOCAL)


def current_caller() -> Caller:
    """Who the running call is made by."""
    return _current.get()


def current_caller_name() -> str:
    """By what the caller's works are marked; "" where no tokens are asked for."""
    caller = current_caller()
    return caller.name if caller.token_id else ""


def enter(caller: Caller) -> None:
    """Makes `caller` the current one for the rest of this task."""
    _current.set(caller)
