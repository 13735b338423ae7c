"""What callers may ask of models and checkpoints."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.events import LogLine
from gateway.models.artifact_files import open_below
from gateway.models.checkpoints import CheckpointCatalog, require_job
from gateway.models.exporter import Exporter
from gateway.models.links import Links, SignedAddress
from gateway.models.model import Model, ModelFile, ModelForm, ModelStatus, WeightType
from gateway.models.records import asked_model
from gateway.pages import Page, page_size
from gateway.store import Store
from plaudit.errors import (
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    PlauditError,
    ResourceExhaustedError,
    UnavailableError,
)
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import shown

CHUNK_BYTES: Final = 1024 * 1024
MOST_EXPORTS: Final = 64
"""Exports that may be under way, or wait, at once."""

_DEFAULT_PAGE: Final = 20
_CHECKPOINT: Final = re.compile(r"(?P<job>[^@]+)(?:@(?P<step>\d{1,10}))?", re.ASCII)


class ModelService:
    """Lists, exports, reads and deletes models. Methods raise NotFoundError for what is not known."""

    def __init__(self, store: Store, artifact_root: Path, exporter: Exporter, links: Links) -> None:
        self._store = store
        self._artifact_root = artifact_root
        self._exporter = exporter
        self._links = links
        self.checkpoints = CheckpointCatalog(store, artifact_root)

    async def get(self, id_or_name: str) -> Model:
        """The model with this id, else the final one of the newest job with this output name."""
        async with self._store.snapshot() as session:
            model = await session.models.find(id_or_name)
        if model is None:
            raise NotFoundError(
                f"there is no model {shown(id_or_name)}; list the models to see their names; a job has one "
                "when it is completed"
            )
        return model

    async def list(self, *, limit: int = 0, after: str = "", job_id: str = "") -> Page[Model]:
        """Models, of a job or of all, newest first. `limit` 0 is 20, above 500 is 500. `after` is the id of
        the last model of the page before, which is also that page's `next_page_token`.
        """
        size = page_size(limit, _DEFAULT_PAGE)
        async with self._store.snapshot() as session:
            if job_id:
                await require_job(session, job_id)
            last = await session.models.find(after) if after else None
            if after and (last is None or last.id != after):
                raise InvalidArgumentError.of(
                    "page_token", f"{shown(after)} is not the id of a model; list again from the start"
                )
            found = await session.models.list(limit=size + 1, after=after or None, job_id=job_id or None)
        return Page(found[:size], found[size - 1].id if len(found) > size else "")

    async def of_job(self, job_id: str) -> Model:
        """The model of a completed job, which can be downloaded.

        Raises FailedPreconditionError (STATUS_FORBIDS, MODEL_UNAVAILABLE), which says what to do instead.
        """
        model = await self._final_of(job_id)
        if model is None:
            raise FailedPreconditionError(
                f"job {job_id} has no model: it was deleted, or never exported; export a checkpoint "
                f"(plaudit model export {job_id})",
                reason="MODEL_UNAVAILABLE",
            )
        return require_available(model)

    async def save(self, job_id: str, *, form: ModelForm, name: str) -> Model:
        """The model of a completed job as clients of the dialect ask for it: a job has it by itself, so that
        nothing is made but where it was deleted, or where only the adapters are asked for.

        It goes by the output name of its job; that another `name` has no effect is told in the job's events.
        Raises FailedPreconditionError (STATUS_FORBIDS), and what `export` raises.
        """
        model = await self._final_of(job_id)
        if model is None or model.form != form or model.status is ModelStatus.UNAVAILABLE:
            model = await self.export(job_id, form=form)
        if name not in ("", model.name):
            line = LogLine(
                "info",
                f"model {model.id} is called {model.name}, as its job's output: {shown(name)} has no effect",
            )
            async with self._store.transaction() as session:
                record = await require_job(session, job_id)
                await session.events.append(record.key, job_id, line, datetime.now(UTC))
        return model

    async def _final_of(self, job_id: str) -> Model | None:
        """The model of a completed job's last checkpoint, or None. Raises FailedPreconditionError."""
        async with self._store.snapshot() as session:
            record = await require_job(session, job_id)
            model = await session.models.final_of(record.key)
        if record.job.status is not JobStatus.COMPLETED:
            raise FailedPreconditionError(
                f"job {job_id} is {record.job.status}: it has a model when it is completed; its checkpoints "
                "can be listed and downloaded until then",
                reason="STATUS_FORBIDS",
            )
        return model

    async def export(self, checkpoint: str, *, form: str = "", dtype: str = "") -> Model:
        """Begins the export of a checkpoint, "job_...@120", or of a job's newest; returns before it is done.

        `form` is "merged" (default) or "adapter", `dtype` "float32" (default) or "bfloat16". An export of the
        same checkpoint in the same form that is there, or under way, is returned.

        Raises InvalidArgumentError, NotFoundError, FailedPreconditionError (NO_ADAPTERS, ADAPTERS_ON_OTHERS),
        ResourceExhaustedError (TOO_MANY_EXPORTS), UnavailableError (NO_TRAINER).
        """
        job_id, step, asked_form, asked_dtype = _checked(checkpoint, form, dtype)
        taken = (
            await self.checkpoints.newest(job_id)
            if step is None
            else await self.checkpoints.get(job_id, f"{job_id}@{step}")
        )
        if asked_form == "adapter":
            taken.files_of("adapter")
        async with self._store.transaction() as session:
            record = await require_job(session, job_id)
            if asked_form == "adapter" and await session.init_checkpoints.of(record.key):
                raise FailedPreconditionError(
                    f"the adapters of job {job_id} lie on what {record.job.spec.resume_from} made of the "
                    "base model, and mean nothing without it; export it merged",
                    reason="ADAPTERS_ON_OTHERS",
                )
            stored = await session.checkpoints.find(record.key, taken.attempt, taken.step)
            assert stored is not None
            model = asked_model(record, stored, asked_form, asked_dtype, datetime.now(UTC))
            same = await session.models.same_export(model)
            if same is not None:
                return same
            if len(await session.models.exporting()) >= MOST_EXPORTS:
                raise ResourceExhaustedError(
                    f"{MOST_EXPORTS} exports are under way or wait; ask again when some are done",
                    reason="TOO_MANY_EXPORTS",
                    retry_after=60.0,
                )
            await session.models.insert(record.key, model)
        try:
            await self._exporter.begin(model)
        except PlauditError:
            async with self._store.transaction() as session:
                await session.models.delete(model.id)
            raise
        return await self.get(model.id)

    async def delete(self, id_or_name: str) -> Model:
        """Deletes a model and its files; its job and checkpoints stay.

        Raises FailedPreconditionError (MODEL_EXPORTING) while it is made.
        """
        model = await self.get(id_or_name)
        async with self._store.transaction() as session:
            model = await session.models.find(model.id) or model
            if model.status is ModelStatus.EXPORTING:
                raise FailedPreconditionError(
                    f"model {model.id} is being exported; delete it when that is done",
                    reason="MODEL_EXPORTING",
                )
            await session.models.delete(model.id)
            # What a kill leaves behind is removed at the next start.
            await session.removals.add([model.uri])
        await asyncio.to_thread(shutil.rmtree, self._artifact_root / model.uri, ignore_errors=True)
        async with self._store.transaction() as session:
            await session.removals.done([model.uri])
        return model

    async def read_file(self, id_or_name: str, path: str, offset: int) -> AsyncIterator[bytes]:
        """The bytes of a file of a model from `offset` on, in chunks: `async for chunk in await ...`.

        Raises NotFoundError for what is no file of it, FailedPreconditionError (MODEL_UNAVAILABLE),
        InvalidArgumentError for an offset beyond its end.
        """
        model = require_available(await self.get(id_or_name))
        file = file_of(model, path)
        if not 0 <= offset <= file.size_bytes:
            raise InvalidArgumentError.of(
                "offset", f"{offset} is beyond {file.path}, which has {file.size_bytes} bytes"
            )
        descriptor = await asyncio.to_thread(open_below, self._artifact_root, f"{model.uri}/{file.path}")
        return _chunks(descriptor, file, offset)

    def link(self, address: str) -> SignedAddress:
        """A link to a file, by its address below the artifact root, that authorises itself."""
        return self._links.sign(address)

    async def open_link(self, link: SignedAddress) -> int:
        """Opens the file of a link; the descriptor is the caller's to close. PermissionDeniedError."""
        self._links.check(link)
        return await asyncio.to_thread(open_below, self._artifact_root, link.address)


def require_available(model: Model) -> Model:
    """The model, or FailedPreconditionError (MODEL_UNAVAILABLE) with the reason."""
    if model.status is ModelStatus.EXPORTING:
        raise FailedPreconditionError(
            f"model {model.id} is being exported ({model.status_detail or 'it has begun'}); ask again when "
            "it is available",
            reason="MODEL_UNAVAILABLE",
        )
    if model.status is ModelStatus.UNAVAILABLE:
        raise FailedPreconditionError(
            f"model {model.id} of job {model.job_id} is not available: {model.status_detail}",
            reason="MODEL_UNAVAILABLE",
        )
    return model


def file_of(model: Model, path: str) -> ModelFile:
    """The file of a model, or NotFoundError with those that it has."""
    for file in model.files:
        if file.path == path:
            return file
    names = ", ".join(file.path for file in model.files)
    raise NotFoundError(f"model {model.id} has no file {shown(path)}; it has {names}", field="path")


async def _chunks(descriptor: int, file: ModelFile, offset: int) -> AsyncIterator[bytes]:
    try:
        while offset < file.size_bytes:
            size = min(CHUNK_BYTES, file.size_bytes - offset)
            chunk = await asyncio.to_thread(os.pread, descriptor, size, offset)
            if not chunk:
                raise UnavailableError(
                    f"{file.path} ends at byte {offset}, and had {file.size_bytes} when it was exported; "
                    "export the model again",
                    reason="ARTIFACT_UNREADABLE",
                )
            yield chunk
            offset += len(chunk)
    finally:
        os.close(descriptor)


def _checked(checkpoint: str, form: str, dtype: str) -> tuple[str, int | None, ModelForm, WeightType]:
    violations = []
    match = _CHECKPOINT.fullmatch(checkpoint)
    if match is None:
        violations.append(
            FieldViolation(
                "checkpoint", f'{shown(checkpoint)} is no checkpoint; name a job, "job_...", or "job_...@120"'
            )
        )
    if form not in ("", "merged", "adapter"):
        violations.append(FieldViolation("form", f"{shown(form)} is neither merged nor adapter"))
    if dtype not in ("", "float32", "bfloat16"):
        violations.append(FieldViolation("dtype", f"{shown(dtype)} is neither float32 nor bfloat16"))
    if match is None or violations:
        raise InvalidArgumentError(violations)
    step = match["step"]
    return (
        match["job"],
        None if step is None else int(step),
        "adapter" if form == "adapter" else "merged",
        "bfloat16" if dtype == "bfloat16" else "float32",
    )
