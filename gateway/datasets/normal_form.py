"""The normal form in which the gateway keeps rows and trainers read them.

A Parquet file with two text columns, one row per row of the dataset, order kept: `prompt`, the JSON of text
or of a list of {"role", "content"}; `columns`, the JSON of an object of every other column, types as they
came. JSON and not Parquet's own types, because rows of one column may differ in type, and 72 must not become
72.0.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.datasets.bounds import DEFAULT_MAX_UNPACKED_BYTES, Unpacked
from gateway.datasets.faults import RowFault
from gateway.datasets.rows import Row
from plaudit.errors import FieldViolation, InvalidArgumentError

MAX_FAULTS_NAMED: Final = 20
MAX_FAULTS_COUNTED: Final = 100_000
"""Wrong rows after which the rest of a file is not read."""
MAX_COLUMNS: Final = 256
"""Most different columns of a dataset, besides the prompt."""

_GROUP_ROWS: Final = 1_000
_GROUP_CHARACTERS: Final = 8 * 1024 * 1024
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What was written: `sha256` is of the file, hex; `size_bytes` its length.

    `methods` are the training methods that every row serves, sorted.
    """

    row_count: int
    columns: tuple[str, ...]
    methods: tuple[str, ...]
    sha256: str
    size_bytes: int


def write_normal_form(
    rows: Iterable[Row | RowFault],
    path: Path,
    dataset_id: str,
    *,
    max_bytes: int = DEFAULT_MAX_UNPACKED_BYTES,
) -> StoredRows:
    """Writes `rows` to the new file `path` in bounded memory and makes it durable.

    `dataset_id` stands in the file's metadata, so that two datasets never share a file. Raises
    InvalidArgumentError where rows are wrong, with the first MAX_FAULTS_NAMED of them and their number; what
    was written by then is left for the caller to remove; ResourceExhaustedError (UPLOAD_TOO_LARGE) where the
    texts to write are longer than `max_bytes`, all together: the head of a CSV stands in every row of them.
    """
    schema = pa.schema([("prompt", pa.string()), ("columns", pa.string())]).with_metadata(
        {"plaudit.dataset_id": dataset_id}
    )
    faults = _Faults()
    columns: dict[str, None] = {}
    rows_of_method: Counter[str] = Counter()
    row_count = 0
    unpacked = Unpacked(max_bytes)
    with path.open("xb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        group = _RowGroup(writer, schema)
        for row in rows:
            if isinstance(row, RowFault):
                faults.add(row)
                if faults.count >= MAX_FAULTS_COUNTED:
                    break
                continue
            row_count += 1
            unpacked.add(1, len(row.prompt_json) + len(row.columns_json))
            columns.update(dict.fromkeys(row.column_names))
            rows_of_method.update(row.methods)
            if len(columns) > MAX_COLUMNS:
                raise InvalidArgumentError.of(
                    "file",
                    f"its rows have more than {MAX_COLUMNS} different columns; put what varies into one "
                    "column, as an object",
                )
            if not faults.count:
                group.add(row)
        faults.raise_if_any(row_count)
        if row_count == 0:
            raise InvalidArgumentError.of(
                "file",
                'holds no rows; as JSONL, write one JSON object a line, for example {"prompt": "What is 2 + '
                '2?"}; as CSV, a head and a row a line',
            )
        group.flush()
    return StoredRows(row_count, tuple(columns), _methods(rows_of_method, row_count), *_seal(path))


def _methods(rows_of_method: Mapping[str, int], row_count: int) -> tuple[str, ...]:
    methods = tuple(sorted(method for method, rows in rows_of_method.items() if rows == row_count))
    if not methods:
        told = " and ".join(f"{rows:,} serve {method}" for method, rows in sorted(rows_of_method.items()))
        raise InvalidArgumentError.of(
            "file",
            f"its {row_count:,} rows serve no training method together: {told}; upload prompts (for grpo) "
            "and texts (for sft) as two datasets",
        )
    return methods


class _Faults:
    """Wrong rows: the first ones by name, all of them by number."""

    def __init__(self) -> None:
        self.count = 0
        self._named: list[FieldViolation] = []

    def add(self, fault: RowFault) -> None:
        self.count += 1
        if len(self._named) < MAX_FAULTS_NAMED:
            self._named.append(FieldViolation(fault.place, fault.message))

    def raise_if_any(self, right_rows: int) -> None:
        if not self.count:
            return
        violations = list(self._named)
        if self.count >= MAX_FAULTS_COUNTED:
            violations.append(
                FieldViolation(
                    "file",
                    f"{self.count:,} rows are wrong, and what follows was not read; check the format",
                )
            )
        elif self.count > len(self._named):
            violations.append(
                FieldViolation(
                    "file",
                    f"{self.count:,} of {self.count + right_rows:,} rows are wrong; the first "
                    f"{len(self._named)} are named",
                )
            )
        raise InvalidArgumentError(violations, reason="WRONG_ROWS")


class _RowGroup:
    """Rows that are written together, so that neither side holds the file in memory."""

    def __init__(self, writer: Any, schema: Any) -> None:
        self._writer = writer
        self._schema = schema
        self._prompts: list[str] = []
        self._columns: list[str] = []
        self._characters = 0

    def add(self, row: Row) -> None:
        self._prompts.append(row.prompt_json)
        self._columns.append(row.columns_json)
        self._characters += len(row.prompt_json) + len(row.columns_json)
        if len(self._prompts) >= _GROUP_ROWS or self._characters >= _GROUP_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        if self._prompts:
            self._writer.write_table(pa.table([self._prompts, self._columns], schema=self._schema))
            self._prompts, self._columns, self._characters = [], [], 0


def _seal(path: Path) -> tuple[str, int]:
    """Waits until the file is on disk; its SHA-256 and size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while block := file.read(_READ_BYTES):
            digest.update(block)
        return digest.hexdigest(), file.tell()
