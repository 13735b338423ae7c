"""plaudit.gateway.v1.TokenService."""

from __future__ import annotations

from typing import Any, Final

import grpc.aio

from gateway.access import current_caller
from gateway.domain import Gateway
from gateway.servicers import _convert
from gateway.store.audit import AuditEntry
from gateway.store.tokens import StoredToken
from plaudit.errors import FieldViolation
from plaudit.gateway.v1 import token_service_pb2 as pb
from plaudit.gateway.v1.token_service_pb2_grpc import TokenServiceServicer
from plaudit.types.roles import Role

Context = grpc.aio.ServicerContext[Any, Any]

_ROLES: Final = {
    Role.VIEWER: pb.ROLE_VIEWER,
    Role.OPERATOR: pb.ROLE_OPERATOR,
    Role.ADMIN: pb.ROLE_ADMIN,
    Role.SERVICE: pb.ROLE_SERVICE,
}
_NAMED: Final = {number: role for role, number in _ROLES.items()}


class Tokens(TokenServiceServicer):
    """Converts, calls the domain, converts back."""

    def __init__(self, gateway: Gateway) -> None:
        self._tokens = gateway.access.tokens
        self._audit = gateway.access.audit

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        violations: list[FieldViolation] = []
        expires_at = None
        if request.HasField("expires_at"):
            expires_at = _convert.time_from_proto(request.expires_at, "expires_at", violations)
        token, secret = await self._tokens.create(
            request.name, _NAMED.get(request.role), expires_at=expires_at, known_violations=violations
        )
        return pb.CreateTokenResponse(token=_token(token), secret=secret)

    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        return pb.ListTokensResponse(tokens=[_token(token) for token in await self._tokens.list()])

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        await self._tokens.revoke(request.id)
        return pb.RevokeTokenResponse()

    async def GetCaller(self, request: pb.GetCallerRequest, context: Context) -> pb.Caller:
        caller = current_caller()
        return pb.Caller(token_id=caller.token_id, name=caller.name, role=_ROLES[caller.role])

    async def ListAuditEntries(
        self, request: pb.ListAuditEntriesRequest, context: Context
    ) -> pb.ListAuditEntriesResponse:
        page = await self._audit.page(limit=request.page_size, page_token=request.page_token)
        return pb.ListAuditEntriesResponse(
            entries=[_entry(entry) for entry in page.items], next_page_token=page.next_page_token
        )


def _token(token: StoredToken) -> pb.Token:
    message = pb.Token(id=token.id, name=token.name, role=_ROLES[token.role], created_by=token.created_by)
    message.created_at.FromDatetime(token.created_at)
    if token.expires_at is not None:
        message.expires_at.FromDatetime(token.expires_at)
    if token.last_used_at is not None:
        message.last_used_at.FromDatetime(token.last_used_at)
    return message


def _entry(entry: AuditEntry) -> pb.AuditEntry:
    message = pb.AuditEntry(
        token_id=entry.token_id,
        caller=entry.caller,
        role=_ROLES[entry.role],
        peer=entry.peer,
        call=entry.call,
        subject=entry.subject,
        outcome=entry.outcome,
    )
    message.time.FromDatetime(entry.time)
    return message
