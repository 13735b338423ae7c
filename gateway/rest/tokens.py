"""/v1/tokens, /v1/audit and /v1/me."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.domain import Gateway
from gateway.rest import queries
from gateway.rest.bodies import read_json_object
from gateway.rest.documented import json_body
from gateway.rest.errors import fields_named
from gateway.rest.objects import Deleted, ListedByToken, RestObject, Time
from gateway.rest.responses import FAILURES, answer
from gateway.store.audit import AuditEntry
from gateway.store.tokens import StoredToken
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.roles import Role
from plaudit.types.validation import parse_model

NoQuery = Annotated[queries.NoQuery, Query()]


class NewToken(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="Name, unique.", examples=["ci-runner"])
    role: Role = Field(description="What it may do.", examples=["operator"])
    expires_at: datetime | None = Field(
        default=None,
        description="From when on it is refused, ISO 8601; UTC where no offset is given. null: never.",
        examples=["2030-01-01T00:00:00Z"],
    )


class TokenObject(RestObject):
    """A token, without its secret."""

    id: str
    object: Literal["token"] = "token"
    name: str
    role: Role
    created_at: Time
    expires_at: Time | None
    last_used_at: Time | None
    created_by: str | None


class NewTokenObject(TokenObject):
    """A new token; `secret` is never shown again."""

    secret: str


class TokenList(RestObject):
    """Every token, newest first."""

    object: Literal["list"] = "list"
    data: list[TokenObject]
    has_more: Literal[False] = False


class AuditEntryObject(RestObject):
    """A call that changed something or was not allowed to; `outcome` is "ok" or the code of its error."""

    object: Literal["audit_entry"] = "audit_entry"
    time: Time
    token_id: str | None
    caller: str
    role: Role
    peer: str
    call: str
    subject: str | None
    outcome: str


class AuditList(ListedByToken[AuditEntryObject]):
    """A page of audit entries, newest first; `page_token=<next_page_token>` asks for the next."""


class AuditQuery(queries.NoQuery):
    """Which entries."""

    limit: int = Field(default=0, description="Most entries. 0: 50; at most 500.")
    page_token: str = Field(default="", description="next_page_token of the page before.")


def _read(data: Mapping[str, Any]) -> tuple[NewToken, Sequence[FieldViolation]]:
    """What is asked for, and what is wrong with its form; others stand for fields that are wrong."""
    try:
        return parse_model(NewToken, data), ()
    except InvalidArgumentError as error:
        wrong = {violation.field for violation in error.violations}
        right = {name: value for name, value in data.items() if name not in wrong}
        return parse_model(NewToken, {"name": "unread", "role": Role.VIEWER, **right}), error.violations


def tokens_router(gateway: Gateway) -> APIRouter:
    """Routes over tokens: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1", tags=["access"], responses=FAILURES)
    tokens = gateway.access.tokens

    @router.post(
        "/tokens",
        response_model=NewTokenObject,
        openapi_extra=json_body("NewToken"),
    )
    async def create_token(request: Request, query: NoQuery) -> Response:
        """Makes a token; its secret is in this answer and nowhere else."""
        asked, violations = _read(await read_json_object(request))
        expires_at = asked.expires_at
        if expires_at is not None and expires_at.tzinfo is None:
            expires_at = expires_at.replace(tzinfo=UTC)
        token, secret = await tokens.create(
            asked.name, asked.role, expires_at=expires_at, known_violations=violations
        )
        return answer(NewTokenObject(**_token(token).model_dump(), secret=secret))

    @router.get("/tokens", response_model=TokenList)
    async def list_tokens(query: NoQuery) -> Response:
        """Lists tokens, newest first, without their secrets."""
        return answer(TokenList(data=[_token(token) for token in await tokens.list()]))

    @router.delete("/tokens/{id}", response_model=Deleted)
    async def revoke_token(id: str, query: NoQuery) -> Response:
        """Forgets a token, by id or name, and ends what it has open."""
        token = await tokens.revoke(id)
        return answer(Deleted(id=token.id, object="token"))

    @router.get("/audit", response_model=AuditList)
    async def list_audit_entries(query: Annotated[AuditQuery, Query()]) -> Response:
        """Lists calls that changed something or were not allowed to, newest first."""
        with fields_named({"page_size": "limit"}):
            page = await gateway.access.audit.page(limit=query.limit, page_token=query.page_token)
        return answer(
            AuditList(
                data=[_entry(entry) for entry in page.items],
                has_more=bool(page.next_page_token),
                next_page_token=page.next_page_token or None,
            )
        )

    return router


def _token(token: StoredToken) -> TokenObject:
    return TokenObject(
        id=token.id,
        name=token.name,
        role=token.role,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        created_by=token.created_by or None,
    )


def _entry(entry: AuditEntry) -> AuditEntryObject:
    return AuditEntryObject(
        time=entry.time,
        token_id=entry.token_id or None,
        caller=entry.caller,
        role=entry.role,
        peer=entry.peer,
        call=entry.call,
        subject=entry.subject or None,
        outcome=entry.outcome,
    )
