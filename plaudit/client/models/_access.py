"""Tokens of callers, and what they did."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from plaudit.types.roles import Role


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the gateway. `last_used_at` is to the minute; `created_by` names the token that made it, ""
    where none did.
    """

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    created_by: str


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made, and its secret, which is never shown again."""

    token: Token
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. `token_id` is "" where the gateway asks for no tokens."""

    token_id: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A call that changed something or was not allowed to. `call` is a gRPC method or "POST /v1/path",
    `subject` the id of what it was about or "", `outcome` "ok" or the reason of its error.
    """

    time: datetime
    token_id: str
    caller: str
    role: Role
    peer: str
    call: str
    subject: str
    outcome: str
