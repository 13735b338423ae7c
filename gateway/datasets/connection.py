"""Datasets that nobody uploads: read from the hub, or from a file below folders that the operator lists."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, Final

from gateway.datasets.faults import RowFault
from gateway.datasets.formats import read_rows
from gateway.datasets.hub import HubReader
from gateway.datasets.service import DatasetService, check_upload
from gateway.datasets.uploads import in_thread
from gateway.models.artifact_files import open_below
from gateway.store.datasets import StoredDataset
from plaudit.errors import (
    AlreadyExistsError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    PlauditError,
)
from plaudit.types.dataset_sources import DatasetSource, parse_dataset_source
from plaudit.types.validation import shown

_TRIED_ROWS: Final = 20
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TriedSource:
    """What the first rows of a source are like.

    `error` says why it cannot be connected, "" where it can. `num_rows` is None where the source does not
    tell it; `columns` are as they would be stored, the prompt among them.
    """

    error: str = ""
    num_rows: int | None = None
    columns: tuple[str, ...] = ()


def read_connection(name: object, data: Mapping[str, Any]) -> tuple[str, DatasetSource]:
    """Name and source of a request, or InvalidArgumentError with all that is wrong in both."""
    violations: list[FieldViolation] = []
    try:
        if not isinstance(name, str):
            fault = "is missing" if name is None else f"{shown(name)} is refused: send text"
            raise InvalidArgumentError.of("name", fault)
        check_upload(name)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    try:
        source = parse_dataset_source(dict(data))
    except InvalidArgumentError as error:
        raise InvalidArgumentError([*violations, *error.violations]) from None
    if violations:
        raise InvalidArgumentError(violations)
    return str(name), source


class DatasetConnection:
    """Connects sources: their rows become a dataset like any other, as they are at that moment."""

    def __init__(self, datasets: DatasetService, hub: HubReader, roots: Sequence[Path]) -> None:
        """Files are read below `roots` only."""
        self._datasets = datasets
        self._hub = hub
        self._roots = tuple(root.expanduser().resolve() for root in roots)

    async def connect(self, name: str, source: DatasetSource) -> StoredDataset:
        """Reads all rows of a source into a dataset. The same name with the same source returns the dataset
        that was made of it; with another one it raises AlreadyExistsError (NAME_TAKEN).

        Raises as `DatasetService.upload` does, and as HubReader.read or InvalidArgumentError (path).
        """
        check_upload(name, source.format or "")
        known = await self._datasets.find(name)
        if known is not None:
            if known.source == source:
                return known
            raise AlreadyExistsError(
                f"the name {name} belongs to dataset {known.id}, which has another source "
                f"({known.source.uri if known.source else known.source_type}) or other settings of it; "
                "choose another name, or delete that dataset"
            )
        async with self._datasets.upload() as upload:
            async with self._chunks(source) as chunks:
                async for chunk in chunks:
                    await upload.write(chunk)
            return await upload.store(name, _format_of(source), source)

    async def try_source(self, source: DatasetSource) -> TriedSource:
        """Reads the first rows of a source, and stores nothing. What is wrong with it is told, not raised.

        Raises ResourceExhaustedError (TOO_MANY_UPLOADS) where too many files are read at once.
        """
        async with self._datasets.reading():
            return await self._tried(source)

    async def _tried(self, source: DatasetSource) -> TriedSource:
        try:
            if source.source_type == "hf":
                async with self._hub.read(source, limit=_TRIED_ROWS) as dataset:
                    head = b"".join([chunk async for chunk in dataset.chunks()])
                    return _first_rows(io.BytesIO(head), "jsonl", dataset.header.num_rows)
            abandoned = Event()
            with await asyncio.to_thread(self._open, source) as file:
                return await in_thread(
                    lambda: _first_rows(file, _format_of(source), None, abandoned), abandoned
                )
        except PlauditError as error:
            return TriedSource(error=error.message)

    @asynccontextmanager
    async def _chunks(self, source: DatasetSource) -> AsyncIterator[AsyncIterator[bytes]]:
        if source.source_type == "hf":
            async with self._hub.read(source) as dataset:
                yield dataset.chunks()
            return
        with await asyncio.to_thread(self._open, source) as file:
            yield _pieces(file)

    def _open(self, source: DatasetSource) -> io.BufferedReader:
        """The file of a source. InvalidArgumentError where it lies below no root, or is none."""
        if not self._roots:
            raise InvalidArgumentError.of(
                "path", "the gateway reads no files by their path: its settings list no dataset_roots"
            )
        path = Path(source.path or "")
        for root in self._roots:
            if path.is_absolute() and path != root and path.is_relative_to(root):
                try:
                    return os.fdopen(open_below(root, path.relative_to(root).as_posix()), "rb")
                except NotFoundError:
                    break
        roots = ", ".join(map(str, self._roots))
        raise InvalidArgumentError.of(
            "path",
            f"{shown(source.path)} is no file below {roots}; name one by its absolute path, without ..",
        )


async def _pieces(file: io.BufferedReader) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield piece


def _format_of(source: DatasetSource) -> str:
    if source.source_type == "hf":
        return "jsonl"
    by_name = "csv" if (source.path or "").lower().endswith((".csv", ".tsv")) else ""
    return source.format or by_name


def _first_rows(
    file: BinaryIO, file_format: str, num_rows: int | None, abandoned: Event | None = None
) -> TriedSource:
    rows, columns = 0, dict.fromkeys(["prompt"])
    with closing(read_rows(file, file_format, abandoned=abandoned)) as found:
        for row in found:
            if isinstance(row, RowFault):
                return TriedSource(error=f"{row.place}: {row.message}", num_rows=num_rows)
            rows += 1
            columns.update(dict.fromkeys(row.column_names))
            if rows == _TRIED_ROWS:
                return TriedSource(num_rows=num_rows, columns=tuple(columns))
    if not rows:
        return TriedSource(error="there are no rows", num_rows=0)
    return TriedSource(num_rows=rows, columns=tuple(columns))
