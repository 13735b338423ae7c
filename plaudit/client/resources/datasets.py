"""Datasets: upload, read, look into, delete."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking, blocking_iterator
from plaudit.client._wire import Wire
from plaudit.errors import InvalidArgumentError, UnavailableError
from plaudit.gateway.v1 import dataset_service_pb2 as pb
from plaudit.gateway.v1.dataset_service_pb2_grpc import DatasetServiceStub
from plaudit.types.validation import shown

_CHUNK_BYTES: Final = 256 * 1024
_ROWS_PER_PAGE: Final = 100
_BEING_COUNTED: Final = "TOKENS_BEING_COUNTED"
_FORMATS_BY_ENDING: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "",  # a list, or lines all the same: the file's beginning says which
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}


class AsyncDatasets:
    """`client.datasets` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        self._stub = DatasetServiceStub(wire.channel)
        self._wire = wire

    async def upload(
        self, path: str | Path, *, name: str | None = None, file_format: str | None = None
    ) -> models.Dataset:
        """Uploads JSONL, a JSON list, CSV or Parquet; `name` defaults to the file's name without its ending.

        `file_format` (jsonl, json, csv or parquet) defaults to what the file's ending or beginning says. The
        same bytes give the same dataset. Raises InvalidArgumentError that names the wrong rows.
        """
        file = Path(path)
        fields = {
            "name": file.stem if name is None else name,
            "format": _FORMATS_BY_ENDING.get(file.suffix.lower(), "") if file_format is None else file_format,
        }
        header = pb.UploadDatasetRequest(header=_convert.carry(pb.UploadDatasetHeader, fields))
        await self._wire.offload(_check_readable, file)

        def frames() -> Iterator[pb.UploadDatasetRequest]:
            yield header
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield pb.UploadDatasetRequest(chunk=chunk)

        return _convert.dataset_from_proto(await self._wire.upload(self._stub.UploadDataset, frames()))

    async def connect(
        self,
        name: str,
        *,
        huggingface_dataset: str | None = None,
        split: str = "train",
        config_name: str | None = None,
        column_mapping: Mapping[str, str] | None = None,
        token: str | None = None,
        path: str | Path | None = None,
        file_format: str | None = None,
    ) -> models.Dataset:
        """Makes a dataset of one of the hub, or of a file at a `path` on the gateway's machine, as it is now.
        The same name with the same source returns the dataset that was made of it.

        `column_mapping` gives columns new names, by those that they have; `token` names a credential that the
        gateway has. A path must lie below a folder that the gateway's settings list.
        """
        source = _source(huggingface_dataset, split, config_name, column_mapping, token, path, file_format)
        request = _convert.carry(pb.ConnectDatasetRequest, {"name": name})
        request.source.CopyFrom(source)
        return _convert.dataset_from_proto(
            await self._wire.call_once(self._stub.ConnectDataset, request, has_deadline=False)
        )

    async def validate(
        self,
        *,
        huggingface_dataset: str | None = None,
        split: str = "train",
        config_name: str | None = None,
        column_mapping: Mapping[str, str] | None = None,
        token: str | None = None,
        path: str | Path | None = None,
        file_format: str | None = None,
    ) -> models.TriedSource:
        """Reads the first rows of a source, as in `connect`, and stores nothing."""
        source = _source(huggingface_dataset, split, config_name, column_mapping, token, path, file_format)
        request = pb.ValidateDatasetSourceRequest(source=source)
        return _convert.tried_source_from_proto(
            await self._wire.call_once(self._stub.ValidateDatasetSource, request, has_deadline=False)
        )

    async def get(self, dataset_id: str) -> models.Dataset:
        """A dataset, by id or name."""
        return _convert.dataset_from_proto(
            await self._wire.call(
                self._stub.GetDataset, _convert.carry(pb.GetDatasetRequest, {"id": dataset_id})
            )
        )

    async def list(self) -> AsyncIterator[models.Dataset]:
        """Datasets, newest first; pages are fetched as they are needed."""
        request = pb.ListDatasetsRequest(page_size=100)
        async for page in self._wire.pages(self._stub.ListDatasets, request):
            for item in page.datasets:
                yield _convert.dataset_from_proto(item)

    async def rows(self, dataset_id: str, *, limit: int = 0) -> AsyncIterator[models.DatasetRow]:
        """Rows in their order, at most `limit` (0: all); pages are fetched as they are needed."""
        if limit < 0:
            raise InvalidArgumentError.of("limit", f"{shown(limit)} is refused: 0 is all, or a number from 1")
        request = _convert.carry(pb.ListDatasetRowsRequest, {"id": dataset_id})
        left = limit or math.inf
        while True:
            request.page_size = int(min(left, _ROWS_PER_PAGE))
            page = await self._wire.call(self._stub.ListDatasetRows, request)
            for item in page.rows:
                yield _convert.dataset_row_from_proto(item)
            left -= len(page.rows)
            if not page.next_page_token or left <= 0:
                return
            request.page_token = page.next_page_token

    async def token_statistics(
        self, dataset_id: str, model: str, *, max_prompt_length: int | None = None, timeout: float = 900.0
    ) -> models.TokenStatistics:
        """How many tokens the prompts of a dataset have as a `model` reads them, chat template included, and
        how many are above `max_prompt_length` (None: a job's default).

        A trainer counts them, and keeps what was counted. Raises FailedPreconditionError where the model does
        not take these prompts, and UnavailableError where no trainer is there, or counting takes longer than
        `timeout` seconds.
        """
        request = _convert.carry(
            pb.GetTokenStatisticsRequest,
            {"dataset_id": dataset_id, "model": model, "max_prompt_length": max_prompt_length or 0},
            required=("dataset_id", "model"),
        )
        give_up = time.monotonic() + timeout
        while True:
            try:
                return _convert.token_statistics_from_proto(
                    await self._wire.call_once(self._stub.GetTokenStatistics, request)
                )
            except UnavailableError as error:
                if error.reason != _BEING_COUNTED or time.monotonic() > give_up:
                    raise
                await self._wire.pause(error.retry_after or 0.0)

    async def delete(self, dataset_id: str) -> None:
        """Deletes a dataset and its file."""
        await self._wire.call_once(
            self._stub.DeleteDataset, _convert.carry(pb.DeleteDatasetRequest, {"id": dataset_id})
        )


class Datasets(Blocking[AsyncDatasets]):
    """`client.datasets`."""

    upload = blocking(AsyncDatasets.upload)
    connect = blocking(AsyncDatasets.connect)
    validate = blocking(AsyncDatasets.validate)
    get = blocking(AsyncDatasets.get)
    list = blocking_iterator(AsyncDatasets.list)
    rows = blocking_iterator(AsyncDatasets.rows)
    token_statistics = blocking(AsyncDatasets.token_statistics)
    delete = blocking(AsyncDatasets.delete)


def _check_readable(file: Path) -> None:
    if not file.is_file():
        raise InvalidArgumentError.of("path", f"{shown(str(file))} is not a file; name a file of rows")
    try:
        file.open("rb").close()
    except OSError as error:
        raise InvalidArgumentError.of(
            "path", f"{shown(str(file))} cannot be read ({error.strerror}); name a file of rows"
        ) from None


def _source(
    huggingface_dataset: str | None,
    split: str,
    config_name: str | None,
    column_mapping: Mapping[str, str] | None,
    token: str | None,
    path: str | Path | None,
    file_format: str | None,
) -> pb.DatasetSource:
    """What is asked for; whether it goes together, the gateway says."""
    fields = {
        "source_type": "hf" if path is None else "path",
        "huggingface_dataset": huggingface_dataset or "",
        "path": "" if path is None else str(path),
        "format": file_format or "",
    }
    source = _convert.carry(pb.DatasetSource, fields)
    if path is None:
        config = {
            "split": split,
            "config_name": config_name or "",
            "column_mapping": column_mapping or {},
            "token": token or "",
        }
        source.huggingface_config.CopyFrom(_convert.carry(pb.HuggingFaceConfig, config))
    return source
