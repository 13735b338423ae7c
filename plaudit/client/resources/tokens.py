"""Tokens of those who may call the gateway, and the log of what they did. For admins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking, blocking_iterator
from plaudit.client._wire import Wire
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import token_service_pb2 as pb
from plaudit.gateway.v1.token_service_pb2_grpc import TokenServiceStub
from plaudit.types.roles import Role
from plaudit.types.validation import shown

_ROLES: Final = {
    pb.ROLE_VIEWER: Role.VIEWER,
    pb.ROLE_OPERATOR: Role.OPERATOR,
    pb.ROLE_ADMIN: Role.ADMIN,
    pb.ROLE_SERVICE: Role.SERVICE,
}
_NUMBERS: Final = {role: number for number, role in _ROLES.items()}


class AsyncTokens:
    """`client.tokens` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        self._stub = TokenServiceStub(wire.channel)
        self._wire = wire

    async def create(
        self, name: str, role: Role | str, *, expires_at: datetime | None = None
    ) -> models.NewToken:
        """Makes a token; its `secret` is never shown again. `expires_at` None: it does not expire.

        Where the answer is lost, the token is there and its secret is not: revoke it, and make another.
        """
        request = _convert.carry(pb.CreateTokenRequest, {"name": name})
        try:
            request.role = _NUMBERS[Role(role)]
        except ValueError:
            roles = ", ".join(each.value for each in Role)
            raise InvalidArgumentError.of("role", f"{shown(role)} is refused; it is one of {roles}") from None
        if expires_at is not None:
            request.expires_at.FromDatetime(expires_at.astimezone(UTC))
        answer = await self._wire.call_once(self._stub.CreateToken, request)
        return models.NewToken(token=_token(answer.token), secret=answer.secret)

    async def list(self) -> list[models.Token]:
        """All tokens, newest first, without their secrets."""
        answer = await self._wire.call(self._stub.ListTokens, pb.ListTokensRequest())
        return [_token(token) for token in answer.tokens]

    async def revoke(self, token_id: str) -> None:
        """Forgets a token, by id or name: its calls are refused from now on, and its streams end."""
        await self._wire.call_once(
            self._stub.RevokeToken, _convert.carry(pb.RevokeTokenRequest, {"id": token_id})
        )

    async def caller(self) -> models.Caller:
        """Who this client is."""
        answer = await self._wire.call(self._stub.GetCaller, pb.GetCallerRequest())
        return models.Caller(token_id=answer.token_id, name=answer.name, role=_ROLES[answer.role])

    async def audit(self) -> AsyncIterator[models.AuditEntry]:
        """Calls that changed something or were not allowed to, newest first."""
        request = pb.ListAuditEntriesRequest(page_size=500)
        async for page in self._wire.pages(self._stub.ListAuditEntries, request):
            for entry in page.entries:
                yield models.AuditEntry(
                    time=entry.time.ToDatetime(tzinfo=UTC),
                    token_id=entry.token_id,
                    caller=entry.caller,
                    role=_ROLES[entry.role],
                    peer=entry.peer,
                    call=entry.call,
                    subject=entry.subject,
                    outcome=entry.outcome,
                )


class Tokens(Blocking[AsyncTokens]):
    """`client.tokens`."""

    create = blocking(AsyncTokens.create)
    list = blocking(AsyncTokens.list)
    revoke = blocking(AsyncTokens.revoke)
    caller = blocking(AsyncTokens.caller)
    audit = blocking_iterator(AsyncTokens.audit)


def _token(token: pb.Token) -> models.Token:
    return models.Token(
        id=token.id,
        name=token.name,
        role=_ROLES[token.role],
        created_at=token.created_at.ToDatetime(tzinfo=UTC),
        expires_at=token.expires_at.ToDatetime(tzinfo=UTC) if token.HasField("expires_at") else None,
        last_used_at=token.last_used_at.ToDatetime(tzinfo=UTC) if token.HasField("last_used_at") else None,
        created_by=token.created_by,
    )
