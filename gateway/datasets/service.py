"""The datasets that jobs learn on."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.datasets.bounds import most_unpacked
from gateway.datasets.builtin import ADDITIONS_NAME, additions_rows
from gateway.datasets.faults import AbandonedError, RowFault
from gateway.datasets.formats import FORMATS, read_rows
from gateway.datasets.normal_form import StoredRows, write_normal_form
from gateway.datasets.previews import RowPreview, read_page
from gateway.datasets.rows import Row, row_of
from gateway.datasets.uploads import ReceivedFile, check_free_space
from gateway.pages import Page, page_size
from gateway.store import Store
from gateway.store.datasets import StoredDataset
from plaudit.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from plaudit.types.dataset_sources import DatasetSource
from plaudit.types.validation import shown

DEFAULT_MAX_UPLOAD_BYTES: Final = 2 * 1000**3
MAX_UPLOADS_AT_ONCE: Final = 4

_DEFAULT_PAGE: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ID: Final = re.compile(r"ds_[0-9a-f]{32}")


class DatasetService:
    """Stores, shows and deletes datasets; a catalogue of them for jobs (`gateway.jobs.ports.DatasetCatalog`).

    Files lie under `artifact_root`: `datasets/{sha256}.parquet`, and `datasets/incoming/` for what is not
    finished. No path is ever made of what a client sends.
    """

    def __init__(
        self, store: Store, artifact_root: Path, *, max_upload_bytes: int = DEFAULT_MAX_UPLOAD_BYTES
    ) -> None:
        self._store = store
        self._root = artifact_root
        self._folder = artifact_root / "datasets"
        self._incoming = self._folder / "incoming"
        self._max_upload_bytes = max_upload_bytes
        self._uploads = 0
        # A deleted dataset's file is not the one that the same bytes, sent again, have just made.
        self._files_change = asyncio.Lock()

    async def start(self) -> None:
        """Makes the folders, removes what a former process left half-done, and registers what ships."""
        await asyncio.to_thread(self._make_folders)
        await self._register_builtin(ADDITIONS_NAME, (row_of(row) for row in additions_rows()))

    async def find(self, id_or_name: str) -> StoredDataset | None:
        """The dataset with this id, else the one with this name, else None."""
        async with self._store.snapshot() as session:
            return await session.datasets.find(id_or_name)

    async def get(self, id_or_name: str) -> StoredDataset:
        """As `find`, or NotFoundError."""
        dataset = await self.find(id_or_name)
        if dataset is None:
            raise _not_found(id_or_name)
        return dataset

    async def list(self, *, limit: int = 0, after: str = "") -> Page[StoredDataset]:
        """Datasets, newest first. `limit` 0 is 20, above 500 is 500. `after` is the id of the last dataset of
        the page before, which is also that page's `next_page_token`.
        """
        size = page_size(limit, _DEFAULT_PAGE)
        async with self._store.snapshot() as session:
            last = await session.datasets.find(after) if after else None
            if after and last is None:
                raise InvalidArgumentError.of(
                    "page_token", f"{shown(after)} is not the id of a dataset; list again from the start"
                )
            found = await session.datasets.list(limit=size + 1, after=last.id if last else None)
        return Page(found[:size], found[size - 1].id if len(found) > size else "")

    async def rows(self, id_or_name: str, *, limit: int = 0, page_token: str = "") -> Page[RowPreview]:
        """Rows in their order. `limit` 0 is 20, above 500 is 500; a page ends early where it grows large.

        `page_token` is the number of the row to begin with, from 0.
        """
        size = page_size(limit, _DEFAULT_PAGE)
        start = _row_number(page_token)
        dataset = await self.get(id_or_name)
        path = self._root / dataset.uri
        found = await asyncio.to_thread(lambda: read_page(path, start, size))
        following = start + len(found)
        return Page(found, str(following) if following < dataset.row_count else "")

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[DatasetUpload]:
        """A dataset on its way in: `write` its bytes, then `store` it; what was not stored leaves no trace.

        Raises ResourceExhaustedError where too many come in at once, or the disk is nearly full.
        """
        async with self.reading(), ReceivedFile(self._incoming, self._max_upload_bytes) as received:
            yield DatasetUpload(self, received)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While a file of a stranger is read. ResourceExhaustedError where too many are at once."""
        if self._uploads >= MAX_UPLOADS_AT_ONCE:
            raise ResourceExhaustedError(
                f"{MAX_UPLOADS_AT_ONCE} uploads are under way, which is the most at once; try again",
                reason="TOO_MANY_UPLOADS",
                retry_after=5.0,
            )
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1

    async def delete(self, id_or_name: str) -> None:
        """Deletes a dataset and its file. FailedPreconditionError (IN_USE) while a job that is not over needs
        it, or where it ships with Plaudit.
        """
        async with self._files_change:
            async with self._store.transaction() as session:
                dataset = await session.datasets.find(id_or_name)
                if dataset is None:
                    raise _not_found(id_or_name)
                if dataset.source_type == "builtin":
                    raise FailedPreconditionError(
                        f"{dataset.id} ships with Plaudit and can not be deleted", reason="IN_USE"
                    )
                jobs = await session.jobs.needing_dataset(dataset.id)
                if jobs:
                    raise FailedPreconditionError(
                        f"dataset {dataset.name} is needed by {', '.join(jobs[:3])}; cancel what needs it, "
                        "or wait",
                        reason="IN_USE",
                    )
                await session.datasets.delete(dataset.id)
            await asyncio.to_thread((self._root / dataset.uri).unlink, missing_ok=True)

    async def _keep(
        self,
        received: ReceivedFile,
        name: str,
        file_format: str,
        source: DatasetSource | None = None,
    ) -> StoredDataset:
        dataset_id = f"ds_{(await received.finish())[:32]}"
        known = await self._known(dataset_id, name)
        if known is not None:
            return known
        check_free_space(self._folder)
        rows = await received.in_thread(
            lambda: _convert(
                received, file_format, dataset_id, most_unpacked(received.size, self._max_upload_bytes)
            )
        )
        async with self._files_change:
            # Another upload may have been faster.
            known = await self._known(dataset_id, name)
            if known is not None:
                return known
            source_type = source.source_type if source else "upload"
            dataset = replace(self._dataset(dataset_id, name, source_type, rows), source=source)
            await received.in_thread(lambda: _publish(received.converted_path, self._root / dataset.uri))
            async with self._store.transaction() as session:
                await session.datasets.insert(dataset)
        return dataset

    async def _known(self, dataset_id: str, name: str) -> StoredDataset | None:
        async with self._store.snapshot() as session:
            known = await session.datasets.find(dataset_id)
            namesake = await session.datasets.find(name)
        if namesake is not None and namesake.id != dataset_id:
            raise AlreadyExistsError(
                f"the name {name} belongs to dataset {namesake.id}, whose content is another; choose another "
                "name, or delete that dataset"
            )
        return known

    async def _register_builtin(self, name: str, rows: Iterable[Row]) -> None:
        async with ReceivedFile(self._incoming, self._max_upload_bytes) as made:
            written = await made.in_thread(lambda: write_normal_form(rows, made.converted_path, name))
            dataset = self._dataset(name, name, "builtin", written)
            await made.in_thread(lambda: _publish(made.converted_path, self._root / dataset.uri))
        async with self._store.transaction() as session:
            known = await session.datasets.find(name)
            if known is None or known.sha256 != dataset.sha256:
                await session.datasets.delete(name)
                await session.datasets.insert(dataset)

    def _dataset(self, dataset_id: str, name: str, source_type: str, rows: StoredRows) -> StoredDataset:
        return StoredDataset(
            id=dataset_id,
            name=name,
            source_type=source_type,
            row_count=rows.row_count,
            columns=rows.columns,
            methods=rows.methods,
            size_bytes=rows.size_bytes,
            sha256=rows.sha256,
            uri=f"datasets/{rows.sha256}.parquet",
            created_at=datetime.now(UTC),
        )

    def _make_folders(self) -> None:
        shutil.rmtree(self._incoming, ignore_errors=True)
        # A root that the operator has made, perhaps for several users, is left as it is.
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(exist_ok=True)
        self._incoming.mkdir(mode=0o700)


class DatasetUpload:
    """One upload; see `DatasetService.upload`."""

    def __init__(self, service: DatasetService, received: ReceivedFile) -> None:
        self._service = service
        self._received = received

    async def write(self, chunk: bytes) -> None:
        """Takes the next bytes of the file. Raises ResourceExhaustedError beyond the limit."""
        await self._received.write(chunk)

    async def store(
        self, name: str, file_format: str = "", source: DatasetSource | None = None
    ) -> StoredDataset:
        """Checks every row and keeps the dataset; the same bytes as before return the dataset that they made.

        `source` is where the bytes came from, None where a client sent them. Raises InvalidArgumentError
        (name, format, or the wrong rows) and AlreadyExistsError (NAME_TAKEN).
        """
        check_upload(name, file_format)
        return await self._service._keep(self._received, name, file_format, source)


def check_upload(name: str, file_format: str = "") -> None:
    """Raises InvalidArgumentError where a dataset can not have this name, or a file this format."""
    violations = []
    if not _NAME.fullmatch(name) or _ID.fullmatch(name):
        violations.append(
            FieldViolation(
                "name",
                f"{shown(name)} is refused: a name has 1 to 64 letters, digits, dots, dashes and "
                "underscores, starts with a letter or digit, and does not look like an id; for example "
                '"additions-v2"',
            )
        )
    if file_format and file_format not in FORMATS:
        violations.append(
            FieldViolation(
                "format",
                f"{shown(file_format)} is refused; it is one of {', '.join(FORMATS)}, or left out for all "
                "but CSV",
            )
        )
    if violations:
        raise InvalidArgumentError(violations)


def _row_number(page_token: str) -> int:
    if not re.fullmatch(r"[0-9]{0,12}", page_token, re.ASCII):
        raise InvalidArgumentError.of(
            "page_token", f"{shown(page_token)} is not the number of a row; list again from the start"
        )
    return int(page_token or 0)


def _convert(received: ReceivedFile, file_format: str, dataset_id: str, max_bytes: int) -> StoredRows:
    def rows() -> Generator[Row | RowFault]:
        with (
            received.path.open("rb") as file,
            closing(
                read_rows(file, file_format, max_unpacked_bytes=max_bytes, abandoned=received.abandoned)
            ) as found,
        ):
            for row in found:
                if received.abandoned.is_set():
                    raise AbandonedError
                yield row

    # What reads the file ends with the rows, however they end.
    with closing(rows()) as found:
        return write_normal_form(found, received.converted_path, dataset_id, max_bytes=max_bytes)


def _publish(written: Path, target: Path) -> None:
    """Moves a finished file to its place, in one step that outlives a power cut."""
    written.replace(target)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _not_found(id_or_name: str) -> NotFoundError:
    return NotFoundError(f"there is no dataset {shown(id_or_name)}; list the datasets to see their names")
