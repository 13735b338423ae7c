"""The normal form on disk: read back by Parquet itself, in bounded groups, and nothing of a wrong file."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq
import pytest

from gateway.datasets import bounds
from gateway.datasets.faults import RowFault
from gateway.datasets.formats import read_rows
from gateway.datasets.normal_form import MAX_COLUMNS, write_normal_form
from gateway.datasets.rows import Row, row_of
from gateway.datasets.uploads import ReceivedFile
from plaudit.errors import InvalidArgumentError, ResourceExhaustedError

Result = TypeVar("Result")


def test_rows_come_back_in_order_and_in_groups(tmp_path: Path) -> None:
    rows = [row_of({"prompt": f"{n}?", "answer": n, f"only_{n % 2}": [n]}) for n in range(2500)]
    stored = write_normal_form(rows, tmp_path / "a.parquet", "ds_1")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["prompt", "columns"]
    assert [str(field.type) for field in table.schema] == ["string", "string"]
    assert [json.loads(text) for text in table["prompt"].to_pylist()] == [f"{n}?" for n in range(2500)]
    assert json.loads(table["columns"][7].as_py()) == {"answer": 7, "only_1": [7]}
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups == 3
    assert stored.row_count == 2500
    assert stored.columns == ("answer", "only_0", "only_1")
    assert stored.size_bytes == (tmp_path / "a.parquet").stat().st_size
    assert stored.sha256 == hashlib.sha256((tmp_path / "a.parquet").read_bytes()).hexdigest()


def test_what_is_written_is_bounded_however_small_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number:0120}" for number in range(250)]
    table = ("prompt," + ",".join(names) + "\n" + ("a" + "," * 250 + "\n") * 1000).encode()
    with pytest.raises(ResourceExhaustedError, match="split it into several") as refused:
        write_normal_form(read_rows(io.BytesIO(table), "csv"), tmp_path / "1", "ds_1", max_bytes=1_000_000)
    assert refused.value.reason == "UPLOAD_TOO_LARGE"
    assert "up to row 32)" in refused.value.message  # a row takes 250 times 120 characters, and some
    monkeypatch.setattr(bounds, "MAX_ROWS", 2)
    with pytest.raises(ResourceExhaustedError, match="more than 2 rows"):
        write_normal_form([row_of({"prompt": "a"}) for _ in range(3)], tmp_path / "2", "ds_2")


def test_a_small_file_may_hold_less_than_a_large_one() -> None:
    assert bounds.most_unpacked(24_000, 2_000_000_000) == 280_000_000
    assert bounds.most_unpacked(100_000_000, 2_000_000_000) == 8_000_000_000
    assert bounds.most_unpacked(1_000, 1_000_000) == 4_000_000


def test_two_datasets_never_share_a_file(tmp_path: Path) -> None:
    row = row_of({"prompt": "a"})
    one = write_normal_form([row], tmp_path / "1", "ds_1")
    again = write_normal_form([row], tmp_path / "2", "ds_1")
    other = write_normal_form([row], tmp_path / "3", "ds_2")
    assert one.sha256 == again.sha256 != other.sha256


def test_twenty_wrong_rows_are_named_and_all_are_counted(tmp_path: Path) -> None:
    rows: list[Row | RowFault] = [RowFault(f"line {2 * n}", f"wrong {n}") for n in range(1, 38)]
    rows.append(row_of({"prompt": "a"}))
    with pytest.raises(InvalidArgumentError) as caught:
        write_normal_form(rows, tmp_path / "a", "ds_1")
    violations = caught.value.violations
    assert [v.field for v in violations] == [*(f"line {2 * n}" for n in range(1, 21)), "file"]
    assert violations[0].message == "wrong 1"
    assert violations[-1].message == "37 of 38 rows are wrong; the first 20 are named"


def test_an_empty_file_and_too_many_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="file: holds no rows"):
        write_normal_form([], tmp_path / "a", "ds_1")
    rows = (row_of({"prompt": "a", f"column_{n}": 1}) for n in range(MAX_COLUMNS + 1))
    with pytest.raises(InvalidArgumentError, match="more than 256 different columns"):
        write_normal_form(rows, tmp_path / "b", "ds_1")


async def test_a_client_that_goes_away_while_its_file_is_opened_leaves_nothing(tmp_path: Path) -> None:
    opened = threading.Event()
    cancelled = threading.Event()

    class SlowFile(ReceivedFile):
        async def in_thread(self, work: Callable[[], Result]) -> Result:
            def slowly() -> Result:
                done = work()
                opened.set()
                cancelled.wait(10)
                return done

            return await super().in_thread(slowly)

    async def receive() -> None:
        async with SlowFile(tmp_path, 1000):
            raise AssertionError("the context is never entered")

    task = asyncio.create_task(receive())
    await asyncio.to_thread(opened.wait, 10)
    assert list(tmp_path.iterdir())
    task.cancel()
    await asyncio.sleep(0)
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []
