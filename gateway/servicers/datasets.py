"""plaudit.gateway.v1.DatasetService."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc.aio

from gateway.datasets import check_upload, read_connection
from gateway.domain import Gateway
from gateway.servicers import _convert
from gateway.store.datasets import StoredDataset
from plaudit.errors import DeadlineExceededError, InvalidArgumentError, PlauditError
from plaudit.gateway.v1 import dataset_service_pb2
from plaudit.gateway.v1.dataset_service_pb2_grpc import DatasetServiceServicer
from plaudit.types.dataset_sources import parse_dataset_source

Context = grpc.aio.ServicerContext[Any, Any]

IDLE_SECONDS: Final = 60.0
"""Longest wait for the next frame of an upload."""

_MAX_DISCARDED_BYTES: Final = 64 * 1024 * 1024
_DISCARD_SECONDS: Final = 2.0


class Datasets(DatasetServiceServicer):
    """Converts, calls the domain, converts back."""

    def __init__(self, gateway: Gateway) -> None:
        self._datasets = gateway.datasets
        self._connection = gateway.dataset_connection
        self._tokens = gateway.prompt_tokens

    async def UploadDataset(
        self, request_iterator: AsyncIterator[dataset_service_pb2.UploadDatasetRequest], context: Context
    ) -> dataset_service_pb2.Dataset:
        frames = aiter(request_iterator)
        try:
            return _convert.dataset_to_proto(await self._upload(frames))
        except DeadlineExceededError:
            raise
        except PlauditError:
            await _discard(frames)
            raise

    async def _upload(self, frames: AsyncIterator[dataset_service_pb2.UploadDatasetRequest]) -> StoredDataset:
        first = await _next_frame(frames)
        if first is None or first.WhichOneof("frame") != "header":
            raise InvalidArgumentError.of("header", "is missing; send it as the first frame, then the chunks")
        header = first.header
        check_upload(header.name, header.format)
        async with self._datasets.upload() as upload:
            while (frame := await _next_frame(frames)) is not None:
                if frame.WhichOneof("frame") != "chunk":
                    raise InvalidArgumentError.of(
                        "chunk", "is missing in a frame; after the header, every frame is a chunk"
                    )
                await upload.write(frame.chunk)
            return await upload.store(header.name, header.format)

    async def ConnectDataset(
        self, request: dataset_service_pb2.ConnectDatasetRequest, context: Context
    ) -> dataset_service_pb2.Dataset:
        name, source = read_connection(request.name or None, _convert.source_to_data(request.source))
        return _convert.dataset_to_proto(await self._connection.connect(name, source))

    async def ValidateDatasetSource(
        self, request: dataset_service_pb2.ValidateDatasetSourceRequest, context: Context
    ) -> dataset_service_pb2.ValidateDatasetSourceResponse:
        source = parse_dataset_source(_convert.source_to_data(request.source))
        tried = await self._connection.try_source(source)
        return dataset_service_pb2.ValidateDatasetSourceResponse(
            error=tried.error, row_count=tried.num_rows, columns=tried.columns
        )

    async def GetDataset(
        self, request: dataset_service_pb2.GetDatasetRequest, context: Context
    ) -> dataset_service_pb2.Dataset:
        return _convert.dataset_to_proto(await self._datasets.get(request.id))

    async def ListDatasets(
        self, request: dataset_service_pb2.ListDatasetsRequest, context: Context
    ) -> dataset_service_pb2.ListDatasetsResponse:
        page = await self._datasets.list(limit=request.page_size, after=request.page_token)
        return dataset_service_pb2.ListDatasetsResponse(
            datasets=[_convert.dataset_to_proto(dataset) for dataset in page.items],
            next_page_token=page.next_page_token,
        )

    async def ListDatasetRows(
        self, request: dataset_service_pb2.ListDatasetRowsRequest, context: Context
    ) -> dataset_service_pb2.ListDatasetRowsResponse:
        page = await self._datasets.rows(request.id, limit=request.page_size, page_token=request.page_token)
        return dataset_service_pb2.ListDatasetRowsResponse(
            rows=[_convert.dataset_row_to_proto(row) for row in page.items],
            next_page_token=page.next_page_token,
        )

    async def GetTokenStatistics(
        self, request: dataset_service_pb2.GetTokenStatisticsRequest, context: Context
    ) -> dataset_service_pb2.TokenStatistics:
        statistics = await self._tokens.statistics(
            request.dataset_id, request.model, max_prompt_length=request.max_prompt_length
        )
        return _convert.token_statistics_to_proto(statistics)

    async def DeleteDataset(
        self, request: dataset_service_pb2.DeleteDatasetRequest, context: Context
    ) -> dataset_service_pb2.DeleteDatasetResponse:
        await self._datasets.delete(request.id)
        return dataset_service_pb2.DeleteDatasetResponse()


async def _next_frame(
    frames: AsyncIterator[dataset_service_pb2.UploadDatasetRequest],
) -> dataset_service_pb2.UploadDatasetRequest | None:
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return await anext(frames, None)
    except TimeoutError:
        raise DeadlineExceededError(
            f"nothing came for {IDLE_SECONDS:g} s, and the upload is dropped; send it again"
        ) from None


async def _discard(frames: AsyncIterator[dataset_service_pb2.UploadDatasetRequest]) -> None:
    """Reads what the client is sending, within bounds: a status that comes while a client writes can be lost
    in it (grpc.aio then reports INTERNAL).
    """
    left = _MAX_DISCARDED_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            async for frame in frames:
                left -= len(frame.chunk)
                if left < 0:
                    return
