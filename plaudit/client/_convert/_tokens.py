"""Tokens, those who hold them, and what they did."""

from __future__ import annotations

from typing import Final

from plaudit.client import models
from plaudit.client._convert._reading import reads_answer
from plaudit.client._convert._values import time_from_proto, utc
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import token_service_pb2 as pb
from plaudit.types.roles import Role
from plaudit.types.validation import shown

_ROLES: Final = {
    pb.ROLE_VIEWER: Role.VIEWER,
    pb.ROLE_OPERATOR: Role.OPERATOR,
    pb.ROLE_ADMIN: Role.ADMIN,
    pb.ROLE_SERVICE: Role.SERVICE,
}
_NUMBERS: Final = {role: number for number, role in _ROLES.items()}


def role_to_proto(role: Role | str) -> pb.Role.ValueType:
    """The enum value of a role, or InvalidArgumentError."""
    try:
        return _NUMBERS[Role(role)]
    except ValueError:
        roles = ", ".join(each.value for each in Role)
        raise InvalidArgumentError.of("role", f"{shown(role)} is refused; it is one of {roles}") from None


@reads_answer
def token_from_proto(message: pb.Token) -> models.Token:
    """A token without its secret."""
    return models.Token(
        id=message.id,
        name=message.name,
        role=_role(message.role),
        created_at=utc(message.created_at),
        expires_at=time_from_proto(message, "expires_at"),
        last_used_at=time_from_proto(message, "last_used_at"),
        created_by=message.created_by,
    )


@reads_answer
def caller_from_proto(message: pb.Caller) -> models.Caller:
    """Who calls."""
    return models.Caller(token_id=message.token_id, name=message.name, role=_role(message.role))


@reads_answer
def audit_entry_from_proto(message: pb.AuditEntry) -> models.AuditEntry:
    """A call that changed something, or was not allowed to."""
    return models.AuditEntry(
        time=utc(message.time),
        token_id=message.token_id,
        caller=message.caller,
        role=_role(message.role),
        peer=message.peer,
        call=message.call,
        subject=message.subject,
        outcome=message.outcome,
    )


def _role(number: pb.Role.ValueType) -> Role:
    role = _ROLES.get(number)
    if role is None:
        raise ValueError(f"{number} is no role that this client knows")
    return role
