"""Reads a dataset in the normal form: Parquet with the columns `prompt` and `columns`, both JSON text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plaudit.errors import PlauditError
from plaudit.types.jobs import DatasetReference
from plaudit.types.scoring import ChatMessage, JsonValue
from plaudit.types.statuses import ErrorCode

_COLUMNS = ("prompt", "columns")
_ROWS_AT_ONCE = 1024
_HASH_CHUNK_BYTES = 1 << 20


class DatasetError(PlauditError):
    """A dataset cannot be trained on. The message names the file, the row (from 1) and the way out."""

    default_reason = "DATASET_ERROR"
    code = ErrorCode.DATASET_ERROR


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A row: `index` counts from 0; `prompt` is text or chat turns; `columns` keep the source's types."""

    index: int
    prompt: str | tuple[ChatMessage, ...]
    columns: Mapping[str, JsonValue]


def read_rows(artifact_root: Path, reference: DatasetReference) -> Iterator[DatasetRow]:
    """Yields the rows in order, after the file was found to be the one that the reference means.

    Text is made valid Unicode on the way: a lone surrogate becomes U+FFFD. Raises DatasetError.
    """
    path = _located(artifact_root, reference)
    digest = _sha256(path, reference.uri)
    if digest != reference.sha256.lower():
        raise DatasetError(
            f"{reference.uri} is not the file that the job was made with (SHA-256 {digest}, expected "
            f"{reference.sha256}); upload the dataset again and make a new job"
        )
    try:
        with pq.ParquetFile(path) as file:
            _check_schema(file, reference)
            index = 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(_COLUMNS)):
                prompts, columns = (batch.column(name).to_pylist() for name in _COLUMNS)
                for prompt_json, columns_json in zip(prompts, columns, strict=True):
                    yield _row(reference.uri, index, prompt_json, columns_json)
                    index += 1
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{reference.uri} cannot be read as Parquet ({error}); upload the dataset again"
        ) from error


def _located(artifact_root: Path, reference: DatasetReference) -> Path:
    uri = PurePosixPath(reference.uri)
    if uri.is_absolute() or ".." in uri.parts:
        raise DatasetError(f"{reference.uri} does not lie under the artifact root")
    path = artifact_root / uri
    if not path.is_file():
        raise DatasetError(
            f"{reference.uri} does not exist under {artifact_root}; check that gateway and trainer have the "
            "same artifact_root, and that the dataset was not deleted"
        )
    return path


def _sha256(path: Path, uri: str) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise DatasetError(f"{uri} cannot be read ({error}); check its permissions") from error
    return digest.hexdigest()


def _check_schema(file: pq.ParquetFile, reference: DatasetReference) -> None:
    names = file.schema_arrow.names
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise DatasetError(
            f"{reference.uri} lacks {' and '.join(missing)} (it has {', '.join(names)}); it is not in the "
            "normal form that an upload makes"
        )
    if file.metadata.num_rows != reference.row_count:
        raise DatasetError(
            f"{reference.uri} has {file.metadata.num_rows} rows, but the job was made with "
            f"{reference.row_count}; upload the dataset again and make a new job"
        )


def _row(uri: str, index: int, prompt_json: object, columns_json: object) -> DatasetRow:
    where = f"{uri}, row {index + 1}"
    prompt = _parsed(where, "prompt", prompt_json)
    columns = _parsed(where, "columns", columns_json)
    if not isinstance(columns, dict):
        raise DatasetError(f"{where}: columns must be a JSON object, but it is {_kind(columns)}")
    return DatasetRow(index, _prompt(where, prompt), columns)


def _parsed(where: str, name: str, text: object) -> Any:
    if not isinstance(text, str):
        raise DatasetError(f"{where}: {name} must be JSON text, but it is {_kind(text)}")
    try:
        return _valid_text(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: {name} is not JSON ({error})") from error


def _prompt(where: str, prompt: object) -> str | tuple[ChatMessage, ...]:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not prompt:
        raise DatasetError(
            f"{where}: prompt must be text or a list of chat turns, but it is {_kind(prompt)}"
            + (" without any" if prompt == [] else "")
        )
    return tuple(_message(f"{where}, turn {number}", turn) for number, turn in enumerate(prompt, 1))


def _message(where: str, turn: object) -> ChatMessage:
    if not isinstance(turn, dict):
        raise DatasetError(f"{where}: a chat turn is an object with role and content, not {_kind(turn)}")
    for name in ("role", "content"):
        if not isinstance(turn.get(name), str):
            raise DatasetError(f"{where}: {name} must be text, but it is {_kind(turn.get(name))}")
    return ChatMessage(role=turn["role"], content=turn["content"])


def _valid_text(value: Any) -> Any:
    """The JSON value with every lone surrogate replaced: tokenizers and protobuf take none."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    return value


def _kind(value: object) -> str:
    names = {str: "text", bool: "a truth value", int: "a number", float: "a number", list: "a list"}
    return "null" if value is None else names.get(type(value), "an object")
