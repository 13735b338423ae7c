"""Datasets in the normal form: read in order, checked against their hash, errors with file and row."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plaudit.types.jobs import DatasetReference
from plaudit.types.scoring import ChatMessage
from plaudit.types.statuses import ErrorCode
from trainer_service.training.dataset import DatasetError, DatasetRow, read_rows


def written(root: Path, rows: list[tuple[object, object]], **columns: str) -> DatasetReference:
    names = {"prompt": "prompt", "columns": "columns"} | columns
    table = pa.table({names["prompt"]: [row[0] for row in rows], names["columns"]: [row[1] for row in rows]})
    (root / "datasets").mkdir(exist_ok=True)
    path = root / "datasets" / "it.parquet"
    pq.write_table(table, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return DatasetReference(uri="datasets/it.parquet", sha256=digest, row_count=max(len(rows), 1))


def test_rows_come_in_order_with_their_types(tmp_path: Path) -> None:
    count = 2500  # more than are read at once
    reference = written(
        tmp_path,
        [
            (
                json.dumps(f"text {i}" if i % 2 else [{"role": "user", "content": f"chat {i}"}]),
                json.dumps(
                    {"answer": i, "share": i / 2, "ok": i % 3 == 0, "tags": ["a", None], "none": None}
                ),
            )
            for i in range(count)
        ],
    )
    rows = list(read_rows(tmp_path, reference))
    assert [row.index for row in rows] == list(range(count))
    assert rows[7] == DatasetRow(
        7, "text 7", {"answer": 7, "share": 3.5, "ok": False, "tags": ["a", None], "none": None}
    )
    assert rows[2498].prompt == (ChatMessage("user", "chat 2498"),)
    assert type(rows[8].columns["answer"]) is int and type(rows[8].columns["share"]) is float


def test_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    reference = written(
        tmp_path, [('"a\\ud83d b\\ud83d\\ude42"', '{"an\\ud83dswer": ["\\ude42", {"x": "\\ud83d"}]}')]
    )
    (row,) = read_rows(tmp_path, reference)
    assert row.prompt == "a\ufffd b🙂"
    assert row.columns == {"an\ufffdswer": ["\ufffd", {"x": "\ufffd"}]}


def test_another_file_is_refused_before_the_first_row(tmp_path: Path) -> None:
    reference = written(tmp_path, [('"a"', "{}")])
    path = tmp_path / reference.uri
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(
        DatasetError, match=r"datasets/it\.parquet is not the file .*" + reference.sha256
    ) as caught:
        next(read_rows(tmp_path, reference))
    assert caught.value.code is ErrorCode.DATASET_ERROR


@pytest.mark.parametrize(
    ("prompt", "columns", "message"),
    [
        ("nope", "{}", "prompt is not JSON"),
        (None, "{}", "prompt must be JSON text, but it is null"),
        ("17", "{}", "prompt must be text or a list of chat turns, but it is a number"),
        ("[]", "{}", "prompt must be text or a list of chat turns, but it is a list without any"),
        ('["hi"]', "{}", "turn 1: a chat turn is an object with role and content, not text"),
        ('[{"role": "user", "content": "a"}, {"role": "user"}]', "{}", "turn 2: content must be text"),
        ('"a"', "[1]", "columns must be a JSON object, but it is a list"),
        ('"a"', "{", "columns is not JSON"),
        ("[" * 100_000, "{}", "prompt is not JSON"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, prompt: str | None, columns: str, message: str) -> None:
    reference = written(tmp_path, [('"fine"', "{}"), (prompt, columns)])
    with pytest.raises(DatasetError) as caught:
        list(read_rows(tmp_path, reference))
    assert caught.value.message.startswith("datasets/it.parquet, row 2")
    assert message in caught.value.message


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    good = written(tmp_path, [('"a"', "{}")])
    with pytest.raises(DatasetError, match=r"does not exist under .*artifact_root"):
        next(read_rows(tmp_path / "other", good))
    with pytest.raises(DatasetError, match="does not lie under the artifact root"):
        next(read_rows(tmp_path, good.model_copy(update={"uri": "../it.parquet"})))
    with pytest.raises(DatasetError, match="has 1 rows, but the job was made with 2"):
        next(read_rows(tmp_path, good.model_copy(update={"row_count": 2})))
    with pytest.raises(DatasetError, match=r"lacks columns \(it has prompt, extra\)"):
        next(read_rows(tmp_path, written(tmp_path, [('"a"', "{}")], columns="extra")))
    garbage = tmp_path / "datasets" / "it.parquet"
    garbage.write_bytes(b"not parquet at all")
    digest = hashlib.sha256(garbage.read_bytes()).hexdigest()
    with pytest.raises(DatasetError, match=r"cannot be read as Parquet"):
        next(read_rows(tmp_path, good.model_copy(update={"sha256": digest})))
