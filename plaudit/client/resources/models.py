"""Models: list, read, export, download, delete."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking, blocking_iterator
from plaudit.client._downloads import download_files
from plaudit.client._resuming import resumed
from plaudit.client._wire import Wire
from plaudit.errors import DeadlineExceededError, FailedPreconditionError, UnavailableError
from plaudit.gateway.v1 import model_service_pb2 as pb
from plaudit.gateway.v1.model_service_pb2_grpc import ModelServiceStub

_POLL_SECONDS: Final = 0.5
_RECONNECT_SECONDS: Final = 60.0


class AsyncModels:
    """`client.models` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        self._stub = ModelServiceStub(wire.channel)
        self._wire = wire

    async def list(self, *, job_id: str = "") -> AsyncIterator[models.Model]:
        """Models, of a job or of all, newest first; pages are fetched as they are needed."""
        request = _convert.carry(pb.ListModelsRequest, {"page_size": 100, "job_id": job_id})
        async for page in self._wire.pages(self._stub.ListModels, request):
            for item in page.models:
                yield _convert.model_from_proto(item)

    async def get(self, model_id: str) -> models.Model:
        """A model, by id; by name it is the final one of the newest job with that output name."""
        return _convert.model_from_proto(
            await self._wire.call(self._stub.GetModel, _convert.carry(pb.GetModelRequest, {"id": model_id}))
        )

    async def export(self, checkpoint: str, *, form: str = "merged", dtype: str = "float32") -> models.Model:
        """Begins the export of a checkpoint, "job_...@120", or of a job's newest; the same again is the same.

        `form` is "merged" or "adapter", `dtype` "float32" or "bfloat16". `wait` says what came of it.
        """
        request = _convert.carry(
            pb.ExportModelRequest,
            {"checkpoint": checkpoint, "form": form, "dtype": dtype},
            required=("checkpoint",),
        )
        return _convert.model_from_proto(await self._wire.call(self._stub.ExportModel, request))

    async def wait(
        self,
        model_id: str,
        *,
        timeout: float = 3600.0,
        on_detail: Callable[[str], object] = lambda detail: None,
    ) -> models.Model:
        """Waits until a model is available, and returns it. `on_detail` is told how its export goes.

        Raises FailedPreconditionError (MODEL_UNAVAILABLE) where there is none, and why, and
        DeadlineExceededError (WAIT_TIMED_OUT) after `timeout` seconds.
        """
        give_up = time.monotonic() + timeout
        while True:
            model = await self.get(model_id)
            if model.status is models.ModelStatus.AVAILABLE:
                return model
            if model.status is models.ModelStatus.UNAVAILABLE:
                raise FailedPreconditionError(
                    f"model {model.id} is not available: {model.status_detail}", reason="MODEL_UNAVAILABLE"
                )
            on_detail(model.status_detail)
            if time.monotonic() > give_up:
                raise DeadlineExceededError(
                    f"after {timeout:g} s model {model.id} is still being exported; wait on",
                    reason="WAIT_TIMED_OUT",
                )
            await self._wire.pause(_POLL_SECONDS)

    async def download(
        self,
        model_id: str,
        folder: str | Path,
        *,
        progress: Callable[[models.DownloadProgress], object] = lambda progress: None,
        overwrite: bool = False,
    ) -> models.Model:
        """Brings the files of a model into `folder`, and returns the model.

        Repeated after a break it goes on where it was; a file gets its name once its SHA-256 is right.
        `progress` is called as bytes arrive. Files of another model, or of anything else, are overwritten
        only with `overwrite`. Raises FailedPreconditionError (MODEL_UNAVAILABLE, FOLDER_UNUSABLE,
        FOLDER_TAKEN), InternalError (DOWNLOAD_DAMAGED).
        """
        model = await self.get(model_id)
        if model.status is not models.ModelStatus.AVAILABLE:
            raise FailedPreconditionError(
                f"model {model.id} is {model.status.value}: {model.status_detail}", reason="MODEL_UNAVAILABLE"
            )
        await download_files(
            model.files,
            Path(folder),
            lambda path, offset: self._read(model.id, path, offset),
            progress,
            self._wire.offload,
            overwrite=overwrite,
        )
        return model

    async def delete(self, model_id: str) -> None:
        """Deletes a model and its files; its job and checkpoints stay."""
        await self._wire.call_once(
            self._stub.DeleteModel, _convert.carry(pb.DeleteModelRequest, {"id": model_id})
        )

    async def _read(self, model_id: str, path: str, offset: int) -> AsyncIterator[bytes]:
        """The bytes of a file from an offset on; a broken stream is resumed where it broke."""

        def rest() -> pb.DownloadModelFileRequest:
            return pb.DownloadModelFileRequest(id=model_id, path=path, offset=offset)

        messages = resumed(
            self._wire, self._stub.DownloadModelFile, rest, _RECONNECT_SECONDS, is_break=_is_break
        )
        async with aclosing(messages):
            async for message in messages:
                offset += len(message.chunk)
                yield message.chunk


def _is_break(error: UnavailableError) -> bool:
    return error.reason != "ARTIFACT_UNREADABLE"


class Models(Blocking[AsyncModels]):
    """`client.models`."""

    list = blocking_iterator(AsyncModels.list)
    get = blocking(AsyncModels.get)
    export = blocking(AsyncModels.export)
    wait = blocking(AsyncModels.wait)
    download = blocking(AsyncModels.download)
    delete = blocking(AsyncModels.delete)
