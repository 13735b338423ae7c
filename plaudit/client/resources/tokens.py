"""Tokens of those who may call the gateway, and the log of what they did. For admins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking, blocking_iterator
from plaudit.client._wire import Wire
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import token_service_pb2 as pb
from plaudit.gateway.v1.token_service_pb2_grpc import TokenServiceStub
from plaudit.types.roles import Role


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
        request.role = _convert.role_to_proto(role)
        if expires_at is not None:
            try:
                request.expires_at.FromDatetime(expires_at.astimezone(UTC))
            except (OverflowError, ValueError):
                raise InvalidArgumentError.of(
                    "expires_at", f"{expires_at} is no time of the years 1 to 9999 in UTC"
                ) from None
        answer = await self._wire.call_once(self._stub.CreateToken, request)
        return models.NewToken(token=_convert.token_from_proto(answer.token), secret=answer.secret)

    async def list(self) -> list[models.Token]:
        """All tokens, newest first, without their secrets."""
        answer = await self._wire.call(self._stub.ListTokens, pb.ListTokensRequest())
        return [_convert.token_from_proto(token) for token in answer.tokens]

    async def revoke(self, token_id: str) -> None:
        """Forgets a token, by id or name: its calls are refused from now on, and its streams end."""
        await self._wire.call_once(
            self._stub.RevokeToken, _convert.carry(pb.RevokeTokenRequest, {"id": token_id})
        )

    async def caller(self) -> models.Caller:
        """Who this client is."""
        return _convert.caller_from_proto(await self._wire.call(self._stub.GetCaller, pb.GetCallerRequest()))

    async def audit(self) -> AsyncIterator[models.AuditEntry]:
        """Calls that changed something or were not allowed to, newest first."""
        request = pb.ListAuditEntriesRequest(page_size=500)
        async for page in self._wire.pages(self._stub.ListAuditEntries, request):
            for entry in page.entries:
                yield _convert.audit_entry_from_proto(entry)


class Tokens(Blocking[AsyncTokens]):
    """`client.tokens`."""

    create = blocking(AsyncTokens.create)
    list = blocking(AsyncTokens.list)
    revoke = blocking(AsyncTokens.revoke)
    caller = blocking(AsyncTokens.caller)
    audit = blocking_iterator(AsyncTokens.audit)
