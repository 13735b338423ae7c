"""Datasets: upload, read, delete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc

from plaudit.client import _convert, models
from plaudit.client._calls import Caller
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import dataset_service_pb2 as pb
from plaudit.gateway.v1.dataset_service_pb2_grpc import DatasetServiceStub
from plaudit.types.validation import shown

_CHUNK_BYTES: Final = 256 * 1024


class Datasets:
    """`client.datasets`."""

    def __init__(self, channel: grpc.Channel, caller: Caller) -> None:
        self._stub = DatasetServiceStub(channel)
        self._caller = caller

    def upload(self, path: str | Path, *, name: str | None = None) -> models.Dataset:
        """Uploads a JSONL file; `name` defaults to the file's name without its ending.

        The same bytes give the same dataset. Raises InvalidArgumentError that names the wrong rows.
        """
        file = Path(path)
        fields = {"name": file.stem if name is None else name, "format": "jsonl"}
        header = pb.UploadDatasetRequest(header=_convert.carry(pb.UploadDatasetHeader, fields))
        if not file.is_file():
            raise InvalidArgumentError.of("path", f"{shown(str(file))} is not a file; name a JSONL file")
        try:
            file.open("rb").close()
        except OSError as error:
            raise InvalidArgumentError.of(
                "path", f"{shown(str(file))} cannot be read ({error.strerror}); name a JSONL file"
            ) from None

        def frames() -> Iterator[pb.UploadDatasetRequest]:
            yield header
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield pb.UploadDatasetRequest(chunk=chunk)

        try:
            # No deadline: an upload takes as long as the file is large; keepalive ends it with a dead peer.
            return _convert.dataset_from_proto(self._stub.UploadDataset(frames()))
        except grpc.RpcError as failure:
            raise self._caller.error(failure) from None

    def get(self, dataset_id: str) -> models.Dataset:
        """A dataset, by id or name."""
        return _convert.dataset_from_proto(
            self._caller.call(self._stub.GetDataset, _convert.carry(pb.GetDatasetRequest, {"id": dataset_id}))
        )

    def list(self) -> Iterator[models.Dataset]:
        """Datasets, newest first; pages are fetched as they are needed."""
        request = pb.ListDatasetsRequest(page_size=100)
        while True:
            page = self._caller.call(self._stub.ListDatasets, request)
            yield from map(_convert.dataset_from_proto, page.datasets)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def delete(self, dataset_id: str) -> None:
        """Deletes a dataset and its file."""
        self._caller.call_once(
            self._stub.DeleteDataset, _convert.carry(pb.DeleteDatasetRequest, {"id": dataset_id})
        )
