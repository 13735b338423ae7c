"""Absolute URLs of files, which authorise themselves, and the files themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from gateway.jobs.job import Job
from gateway.models.model import Model, ModelFile, ModelStatus
from gateway.models.service import ModelService
from gateway.rest import objects

FILES_PATH: Final = "/v1/files/"

_WEIGHTS: Final = (".safetensors", ".safetensors.index.json")


class DownloadLinks:
    """Makes URLs by the Host that a request came to: whoever reached the gateway there reaches the files."""

    def __init__(self, models: ModelService) -> None:
        self._models = models

    def url(self, request: Request, address: str) -> str:
        """The URL of a file, by its address below the artifact root."""
        link = self._models.link(address)
        query = urlencode({"expires": link.expires, "signature": link.signature})
        return f"{str(request.base_url).rstrip('/')}{FILES_PATH}{quote(address)}?{query}"

    def files(self, request: Request, folder: str, files: Iterable[ModelFile]) -> list[objects.DownloadFile]:
        """Files in a folder below the artifact root."""
        return [
            objects.DownloadFile(
                path=file.path,
                url=self.url(request, f"{folder}/{file.path}"),
                size_bytes=file.size_bytes,
                sha256=file.sha256,
            )
            for file in files
        ]

    def weights(self, request: Request, model: Model) -> str | None:
        """The URL of a model's weights, or of the index of them; None where it cannot be had."""
        if model.status is not ModelStatus.AVAILABLE:
            return None
        names = sorted(file.path for file in model.files if file.path.endswith(_WEIGHTS))
        # An index names the files that hold the weights together.
        first = next((name for name in names if name.endswith(".index.json")), names[0] if names else None)
        return None if first is None else self.url(request, f"{model.uri}/{first}")

    async def of_job(self, request: Request, job: Job) -> str | None:
        """The URL of the weights of a job's model, or None where it has none."""
        return self.weights(request, await self._models.get(job.model_id)) if job.model_id else None


class OpenFileResponse(FileResponse):
    """An open file, with ranges and HEAD as FileResponse has them; it is closed whatever happens."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        super().__init__(
            # The very file that was opened, whatever lies at its name by now.
            f"/proc/self/fd/{descriptor}",
            stat_result=os.fstat(descriptor),
            media_type="application/octet-stream",
            filename=PurePosixPath(name).name,
            # Hostile text, where a browser would show it.
            headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-transform"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)
