"""plaudit.gateway.v1.RescoreService."""

from __future__ import annotations

from typing import Any

import grpc.aio

from gateway.domain import Gateway
from gateway.servicers import _convert
from plaudit.errors import FieldViolation
from plaudit.gateway.v1 import rescore_service_pb2 as pb
from plaudit.gateway.v1.rescore_service_pb2_grpc import RescoreServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class Rescores(RescoreServiceServicer):
    """Converts, calls the domain, converts back."""

    def __init__(self, gateway: Gateway) -> None:
        self._rescores = gateway.rescores

    async def CreateRescore(self, request: pb.CreateRescoreRequest, context: Context) -> pb.Rescore:
        violations: list[FieldViolation] = []
        rescore = await self._rescores.create(
            request.job_id,
            _convert.rescore_to_data(request, violations),
            request_id=request.request_id or None,
            known_violations=violations,
        )
        return _convert.rescore_to_proto(rescore)

    async def GetRescore(self, request: pb.GetRescoreRequest, context: Context) -> pb.Rescore:
        return _convert.rescore_to_proto(await self._rescores.get(request.id))

    async def ListRescores(
        self, request: pb.ListRescoresRequest, context: Context
    ) -> pb.ListRescoresResponse:
        page = await self._rescores.list(
            job_id=request.job_id, limit=request.page_size, after=request.page_token
        )
        return pb.ListRescoresResponse(
            rescores=[_convert.rescore_to_proto(rescore) for rescore in page.items],
            next_page_token=page.next_page_token,
        )

    async def CancelRescore(self, request: pb.CancelRescoreRequest, context: Context) -> pb.Rescore:
        return _convert.rescore_to_proto(await self._rescores.cancel(request.id))

    async def ListRescoreResults(
        self, request: pb.ListRescoreResultsRequest, context: Context
    ) -> pb.ListRescoreResultsResponse:
        page = await self._rescores.results(
            request.id, limit=request.page_size, page_token=request.page_token
        )
        return pb.ListRescoreResultsResponse(
            results=[_convert.rescore_result_to_proto(result) for result in page.items],
            next_page_token=page.next_page_token,
        )
