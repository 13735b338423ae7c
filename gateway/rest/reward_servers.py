"""/v1/reward_servers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from gateway.domain import Gateway
from gateway.rest import _convert, objects, queries
from gateway.rest.bodies import read_json_object
from gateway.rest.documented import json_body
from gateway.rest.responses import FAILURES, answer
from gateway.rewards import Registration, registration_refusal
from plaudit.errors import InvalidArgumentError
from plaudit.types.validation import parse_model

NoQuery = Annotated[queries.NoQuery, Query()]


class NewRewardServer(Registration):
    """A reward server to register; it need not be up. Secrets are named, never held."""

    name: str = Field(description="Name, unique.", examples=["math-rewards"])


def reward_servers_router(gateway: Gateway) -> APIRouter:
    """Routes over reward servers: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1/reward_servers", tags=["reward servers"], responses=FAILURES)
    servers = gateway.reward_servers

    @router.post(
        "",
        response_model=objects.RewardServerObject,
        openapi_extra=json_body("NewRewardServer"),
    )
    async def create_reward_server(request: Request, query: NoQuery) -> Response:
        """Registers a reward server; the same content again returns the same server."""
        data = await read_json_object(request)
        try:
            asked = parse_model(NewRewardServer, data)
        except InvalidArgumentError as error:
            raise registration_refusal(error, data.get("name"), data.get("addresses")) from None
        return answer(_convert.reward_server_object(await servers.create(asked.name, asked)))

    @router.get("", response_model=objects.RewardServerList)
    async def list_reward_servers(query: NoQuery) -> Response:
        """Lists reward servers by name, as they answer now."""
        live = await servers.list()
        return answer(objects.RewardServerList(data=[_convert.reward_server_object(each) for each in live]))

    @router.get("/{id}", response_model=objects.RewardServerObject)
    async def get_reward_server(id: str, query: NoQuery) -> Response:
        """Returns a reward server, by id or name, as it answers now."""
        return answer(_convert.reward_server_object(await servers.get(id)))

    @router.delete("/{id}", response_model=objects.Deleted)
    async def delete_reward_server(id: str, query: NoQuery) -> Response:
        """Forgets a reward server."""
        await servers.delete(id)
        return answer(objects.Deleted(id=id, object="reward_server"))

    return router
