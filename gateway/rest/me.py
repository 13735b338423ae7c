"""/v1/me: whom a call is taken to be from."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from gateway.access import current_caller
from gateway.rest import queries
from gateway.rest.objects import RestObject
from gateway.rest.responses import FAILURES, answer
from plaudit.types.roles import Role

_EVERYONE = "local"
"""The one tenant: every caller sees all."""


class WorkspaceObject(RestObject):
    """Where jobs and datasets belong."""

    id: str
    name: str
    kind: Literal["self_hosted"] = "self_hosted"


class MeObject(RestObject):
    """The caller. There is one tenant, no plan, and nobody's e-mail address.

    `user_id`, `name` and `role` are those of its token.
    """

    object: Literal["user"] = "user"
    user_id: str
    name: str
    role: Role
    email: None = None
    plan: Literal["self_hosted"] = "self_hosted"
    org_id: str
    workspace: WorkspaceObject


class BalanceObject(RestObject):
    """What is left to spend: nothing is billed here."""

    object: Literal["balance"] = "balance"
    balance_usd: None = None


def me_router() -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1", tags=["service"], responses=FAILURES)

    @router.get("/me", response_model=MeObject)
    async def get_me(query: Annotated[queries.NoQuery, Query()]) -> Response:
        """Says whom the call is taken to be from."""
        caller = current_caller()
        workspace = WorkspaceObject(id=_EVERYONE, name=_EVERYONE)
        return answer(
            MeObject(
                user_id=caller.token_id or _EVERYONE,
                name=caller.name,
                role=caller.role,
                org_id=_EVERYONE,
                workspace=workspace,
            )
        )

    @router.get("/billing/balance", response_model=BalanceObject)
    async def get_balance(query: Annotated[queries.NoQuery, Query()]) -> Response:
        """Says that nothing is billed. Clients of the dialect try their keys on this route."""
        return answer(BalanceObject())

    return router
