"""plaudit.gateway.v1.ModelService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from gateway.domain import Gateway
from gateway.servicers import _convert
from plaudit.gateway.v1 import model_service_pb2 as pb
from plaudit.gateway.v1.model_service_pb2_grpc import ModelServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class Models(ModelServiceServicer):
    """Converts, calls the domain, converts back."""

    def __init__(self, gateway: Gateway) -> None:
        self._models = gateway.models

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        page = await self._models.list(
            limit=request.page_size, after=request.page_token, job_id=request.job_id
        )
        return pb.ListModelsResponse(
            models=[_convert.model_to_proto(model) for model in page.items],
            next_page_token=page.next_page_token,
        )

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.Model:
        return _convert.model_to_proto(await self._models.get(request.id))

    async def ExportModel(self, request: pb.ExportModelRequest, context: Context) -> pb.Model:
        model = await self._models.export(request.checkpoint, form=request.form, dtype=request.dtype)
        return _convert.model_to_proto(model)

    async def DownloadModelFile(
        self, request: pb.DownloadModelFileRequest, context: Context
    ) -> AsyncIterator[pb.DownloadModelFileResponse]:
        async for chunk in await self._models.read_file(request.id, request.path, request.offset):
            yield pb.DownloadModelFileResponse(chunk=chunk)

    async def DeleteModel(self, request: pb.DeleteModelRequest, context: Context) -> pb.DeleteModelResponse:
        await self._models.delete(request.id)
        return pb.DeleteModelResponse()

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: Context
    ) -> pb.ListCheckpointsResponse:
        page = await self._models.checkpoints.list(
            request.job_id, limit=request.page_size, after=request.page_token
        )
        return pb.ListCheckpointsResponse(
            checkpoints=[_convert.checkpoint_to_proto(checkpoint) for checkpoint in page.items],
            next_page_token=page.next_page_token,
        )
