"""plaudit.gateway.v1.RewardFunctionService."""

from __future__ import annotations

from typing import Any

import grpc.aio

from gateway.domain import Gateway
from gateway.servicers import _convert
from plaudit.gateway.v1 import reward_function_service_pb2 as pb
from plaudit.gateway.v1.reward_function_service_pb2_grpc import RewardFunctionServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class RewardFunctions(RewardFunctionServiceServicer):
    """Converts, calls the domain, converts back."""

    def __init__(self, gateway: Gateway) -> None:
        self._functions = gateway.reward_functions

    async def CreateRewardFunction(
        self, request: pb.CreateRewardFunctionRequest, context: Context
    ) -> pb.RewardFunction:
        asked = request.reward_function
        function = await self._functions.create(
            asked.name,
            asked.source.encode("utf-8"),
            file_format=asked.format,
            filename=asked.filename,
            request_id=request.request_id,
        )
        return _convert.reward_function_to_proto(function, with_source=True)

    async def GetRewardFunction(
        self, request: pb.GetRewardFunctionRequest, context: Context
    ) -> pb.RewardFunction:
        function = await self._functions.get(request.id)
        return _convert.reward_function_to_proto(function, with_source=True)

    async def ListRewardFunctions(
        self, request: pb.ListRewardFunctionsRequest, context: Context
    ) -> pb.ListRewardFunctionsResponse:
        page = await self._functions.list(limit=request.page_size, after=request.page_token)
        return pb.ListRewardFunctionsResponse(
            reward_functions=[_convert.reward_function_to_proto(f, with_source=False) for f in page.items],
            next_page_token=page.next_page_token,
        )

    async def DeleteRewardFunction(
        self, request: pb.DeleteRewardFunctionRequest, context: Context
    ) -> pb.DeleteRewardFunctionResponse:
        await self._functions.delete(request.id)
        return pb.DeleteRewardFunctionResponse()
