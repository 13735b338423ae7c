"""JSON, CSV and Parquet: the same rows come out of each, and what is wrong is named by its place."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.datasets.faults import RowFault
from gateway.datasets.formats import _parquet_process, read_rows
from gateway.datasets.rows import MAX_ROW_BYTES, Row
from gateway.parquet_reader._pages import PageSizes
from plaudit.errors import ResourceExhaustedError

TURNS = [{"role": "user", "content": "2 + 3?"}]


@contextmanager
def opened(data: bytes) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def read(data: bytes, file_format: str = "") -> list[Row | RowFault]:
    with opened(data) as file:
        return list(read_rows(file, file_format))


def values(data: bytes, file_format: str = "") -> list[dict[str, Any]]:
    """The rows as JSON; none may be wrong."""
    found = read(data, file_format)
    assert not [row for row in found if isinstance(row, RowFault)], found
    return [
        {"prompt": json.loads(row.prompt_json), **json.loads(row.columns_json)}
        for row in found
        if isinstance(row, Row)
    ]


def faults(data: bytes, file_format: str = "") -> list[tuple[str, str]]:
    return [(row.place, row.message) for row in read(data, file_format) if isinstance(row, RowFault)]


def parquet(table: Any, **settings: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **settings)
    return file.getvalue()


ROWS: list[dict[str, Any]] = [
    {"prompt": TURNS, "answer": 5, "hint": None, "tags": ["a", "b"]},
    {"prompt": "4 + 4?", "answer": 8.0, "hint": 'say "eight",\nplease', "tags": []},
    {"prompt": "größer ☃ 𝄞", "answer": True, "hint": "x", "tags": [[1], {"a": None}]},
]


def test_a_json_list_and_lines_hold_the_same() -> None:
    lines = "\n".join(json.dumps(row) for row in ROWS).encode()
    assert values(json.dumps(ROWS).encode()) == values(lines) == ROWS
    assert values(json.dumps(ROWS, indent=2).encode("utf-8-sig"), "json") == ROWS
    assert [
        row["answer"] for row in values(b'[{"prompt":"a","answer":72},{"prompt":"b","answer":72.0}]')
    ] == [72, 72.0]
    assert read(b" [ ] ") == []


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'[{"prompt":"a"}', [("row 2", "the file ends where the list should go on")]),
        (b'[{"prompt":"a"}; {"prompt":"b"}]', [("row 2", "there is ';' where the list should go on")]),
        (b'[{"prompt":"a"},]', [("row 2", "is not JSON: Expecting value at its character 1")]),
        (b'[{"prompt":"a"},{"prompt":', [("row 2", "is not JSON: Expecting value at its character 11")]),
        (b'[{"prompt":"a"}] []', [("row 2", "something stands behind the end of the list")]),
        (
            b'[{"x":1},{"prompt":"a"},7]',
            [("row 1", 'no "prompt"'), ("row 3", "the row is 7, not a JSON object")],
        ),
        (b'[{"prompt":"a","x":NaN},{"prompt":"b"}]', [("row 1", "NaN is no JSON value")]),
        (b'[{"prompt":"a","x":1,"x":2}]', [("row 1", 'the name "x" stands twice')]),
        (b'[{"prompt":"\\ud83d"}]', [("row 1", "half of a surrogate pair")]),
        (b'[{"prompt":"\xff"}]', [("row 1", "is not UTF-8")]),
        (b'["' + b"a" * (2 * MAX_ROW_BYTES), [("row 1", "longer than 4,194,304 bytes, or does not end")]),
        (b"[" * 100_000, [("row 1", "nested more than 64 levels deep")]),
    ],
)
def test_a_wrong_list_is_told_where_it_is_wrong(data: bytes, told: list[tuple[str, str]]) -> None:
    found = faults(data)
    assert [place for place, _ in found] == [place for place, _ in told]
    assert all(words in message for (_, message), (_, words) in zip(found, told, strict=True)), found


def test_an_object_that_is_no_list_is_told_when_json_was_said() -> None:
    assert faults(b'{"data": []}', "json") == [
        ("row 1", "the file is not a list of objects; write one as [{...}, {...}], or send JSONL")
    ]


def test_csv_as_spreadsheets_write_it() -> None:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerows([["prompt", "answer"], ["2 + 3?", 5], ['say "eight",\nplease', "8"], [" ☃ ", ""]])
    expected = [
        {"prompt": "2 + 3?", "answer": "5"},
        {"prompt": 'say "eight",\nplease', "answer": "8"},
        {"prompt": " ☃ ", "answer": ""},
    ]
    assert "\r\n" in file.getvalue()
    assert values(file.getvalue().encode("utf-8-sig"), "csv") == expected
    for delimiter in (";", "\t"):
        other = io.StringIO()
        csv.writer(other, delimiter=delimiter).writerows(
            [["answer", "prompt"], [1, "a"], [2, f"b{delimiter}c"]]
        )
        assert values(other.getvalue().encode(), "csv") == [
            {"prompt": "a", "answer": "1"},
            {"prompt": f"b{delimiter}c", "answer": "2"},
        ]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"question,answer\na,b\n", [("line 1", "names no column of prompt, messages")]),
        (b"prompt,a,a\nx,1,2\n", [("line 1", 'the column "a" stands twice')]),
        (b"prompt,,a\nx,1,2\n", [("line 1", "a column has no name")]),
        (
            b"prompt,a\nx\n\ny,1,2\nz,1\n",
            [("line 2", "1 fields and the head names 2"), ("line 4", "3 fields")],
        ),
        (b'prompt,a\n"x\nover lines",1\n,2\n', [("line 4", "the prompt is empty")]),
        (b'prompt,a\n"x,1\n', [("line 2", "is not CSV")]),
        (b'prompt,a\n"x"y,1\n', [("line 2", "is not CSV")]),
        (b"prompt\na\xff\n", [("line 2", "is not UTF-8")]),
        (b"prompt\n" + b"a" * (MAX_ROW_BYTES + 1), [("line 2", "longer than 4,194,304 bytes")]),
        (b'prompt\n"' + b"a\n" * MAX_ROW_BYTES, [("line 2", "field larger than field limit")]),
        (b"PK\x03\x04abc", [("line 1", "save it as CSV")]),
    ],
)
def test_a_wrong_table_is_told_where_it_is_wrong(data: bytes, told: list[tuple[str, str]]) -> None:
    found = faults(data, "csv")
    assert len(found) == len(told)
    for (place, message), (expected_place, words) in zip(found, told, strict=True):
        assert place.startswith(expected_place)
        assert words in message


def test_parquet_keeps_types_that_json_has() -> None:
    table = pa.table(
        {
            "prompt": pa.array([TURNS, TURNS]),
            "answer": pa.array([5, None], pa.int32()),
            "big": pa.array([2**62 + 1, -1], pa.int64()),
            "ratio": pa.array([0.5, math.nan], pa.float32()),
            "flag": pa.array([True, False]),
            "price": pa.array([Decimal("1.50"), Decimal("12345678901234567890.12")]),
            "units": pa.array([Decimal("72.00"), Decimal("-3.00")]),
            "day": pa.array([dt.date(2026, 11, 30), None]),
            "at": pa.array([dt.datetime(2026, 11, 30, 12, 0, tzinfo=dt.UTC)] * 2),
            "tags": pa.array([["a"], []]),
            "inner": pa.array([{"a": 1, "b": [1.5]}, {"a": None, "b": None}]),
            "pairs": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        }
    )
    first, second = values(parquet(table))
    assert first["prompt"] == TURNS
    assert (first["answer"], second["answer"]) == (5, None)
    assert first["big"] == 2**62 + 1
    # Data frames write a missing number as NaN.
    assert (first["ratio"], second["ratio"]) == (0.5, None)
    assert (first["flag"], second["flag"]) == (True, False)
    assert (first["price"], second["price"]) == (1.5, "12345678901234567890.12")
    assert (first["units"], type(first["units"]), second["units"]) == (72, int, -3)
    assert first["day"] == "2026-11-30"
    assert first["at"] == "2026-11-30T12:00:00+00:00"
    assert first["tags"] == ["a"]
    assert first["inner"] == {"a": 1, "b": [1.5]}
    assert first["pairs"] == [["k", 1]]


def test_parquet_values_that_json_has_not_are_refused_by_row() -> None:
    table = pa.table({"prompt": ["a", "b"], "x": [1.0, math.inf]})
    assert faults(parquet(table)) == [
        ("row 2", "the row holds inf, which JSON does not have; write null or text")
    ]
    table = pa.table({"prompt": ["a"], "x": [b"raw"]})
    assert "bytes values" in faults(parquet(table))[0][1]
    deep = pa.array([1])
    for _ in range(70):
        deep = pa.StructArray.from_arrays([deep], ["a"])
    assert faults(parquet(pa.table({"prompt": ["a"], "x": deep}))) == [
        ("row 1", "the row is nested more than 64 levels deep; flatten it")
    ]
    table = pa.table({"question": ["a"]})
    assert 'no "prompt" (its columns: ["question"])' in faults(parquet(table))[0][1]


def test_a_large_text_over_and_over_takes_little_memory() -> None:
    text = "a" * 1_000_000
    table = pa.table(
        {"prompt": pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array([text]))}
    )
    data = parquet(table, compression="zstd")
    assert len(data) < 100_000
    tracemalloc.start()
    try:
        count = 0
        with opened(data) as file:
            for row in read_rows(file, ""):
                assert isinstance(row, Row)
                count += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 200
    # 16 rows of 1 MB at a time, in a few copies, and not 200.
    assert peak < 100_000_000


def repeated(text: str, times: int) -> bytes:
    """A small file that holds the text so many times."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([text]))
    return parquet(pa.table({"prompt": column}), compression="zstd", store_schema=False)


def test_what_a_file_unpacks_to_is_counted_whatever_it_says_of_itself() -> None:
    data = repeated("a" * 100_000, 100_000)
    said = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).total_byte_size
    assert max(len(data), said) < 200_000
    seen = 0
    with (
        opened(data) as file,
        pytest.raises(ResourceExhaustedError, match="2,000,000 bytes unpacked") as refused,
    ):
        for _ in read_rows(file, "", max_unpacked_bytes=2_000_000):
            seen += 1
    assert refused.value.reason == "UPLOAD_TOO_LARGE"
    # It stops there: 20 rows are two million bytes, and 16 come at a time.
    assert seen == 16


WRITTEN: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "compression": "zstd"},
    {
        "compression": "gzip",
        "data_page_version": "2.0",
        "write_page_index": True,
        "write_page_checksum": True,
    },
    {"compression": "none", "version": "1.0", "row_group_size": 7, "data_page_size": 100},
]


@pytest.mark.parametrize("written", WRITTEN)
def test_what_a_page_unpacks_to_is_read_from_the_page(written: dict[str, Any]) -> None:
    texts = [chr(97 + n % 26) * (1 + 100 * n) for n in range(40)]
    table = pa.table({"prompt": texts, "more": [[{"n": n}] * (n % 5) for n in range(40)]})
    data = parquet(table, **written)
    file = io.BytesIO(data)
    metadata = pq.ParquetFile(file).metadata
    sizes = PageSizes(file, metadata)
    for group in range(metadata.num_row_groups):
        columns = [metadata.row_group(group).column(n) for n in range(metadata.num_columns)]
        # A column that was not cut into pages is one page, and its dictionary; both with their headers.
        most = sum(column.total_uncompressed_size for column in columns)
        assert 0 < sizes.of(group).all < most
        if "data_page_size" not in written:
            # In a header may stand the smallest and the largest text, of nearly 4 kB each.
            assert sizes.of(group).all > most - 200 * len(columns) - 2 * len(texts[-1])
        assert (sizes.of(group).dictionaries > 0) is ("use_dictionary" not in written)
    assert [value["prompt"] for value in values(data)] == texts


def test_a_page_that_unpacks_to_too_much_is_never_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _parquet_process,
        "_PROGRAM",
        "from gateway.parquet_reader import _pages; _pages.MAX_OPEN_PAGES_BYTES = 1_000_000; "
        + _parquet_process._PROGRAM,
    )
    small, large = ["a" * 1_000] * 3, ["b" * 600_000]
    rows = pa.table({"prompt": [*small, *large], "answer": [*small, *large]})
    data = parquet(rows, compression="zstd", use_dictionary=False, row_group_size=3)
    read_whole = []
    with (
        opened(data) as file,
        pytest.raises(
            ResourceExhaustedError, match=r'row group 2 of the file .* to column "answer"'
        ) as refused,
    ):
        for row in read_rows(file, ""):
            read_whole.append(row)
    assert refused.value.reason == "UPLOAD_TOO_LARGE"
    assert len(read_whole) == 3
    with pytest.raises(ResourceExhaustedError, match='column "prompt"'):
        read(repeated("a" * 1_000_001, 2))


def test_rows_that_are_far_too_large_are_told_unseen() -> None:
    texts = ["a", "b" * 40_000_000, "c"]
    for column in (pa.array(texts), pa.array(texts).dictionary_encode()):
        data = parquet(pa.table({"prompt": column}), compression="zstd")
        assert faults(data) == [("row 2", "the row is longer than 4,194,304 bytes; split it or shorten it")]


def test_columns_of_one_name_are_refused_in_parquet_too() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], ["prompt", "n", "n"])
    assert faults(parquet(table)) == [
        ("row 1", 'the column "n" stands twice in the file; rename one of the two')
    ]
    twins = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["m", "m"])
    inner = pa.Table.from_arrays([pa.array(["a"]), twins], ["prompt", "n"])
    assert len(faults(parquet(inner))) == 1


def assert_rows_and_faults(data: bytes, file_format: str) -> None:
    """Every row is in normal form or told in words, all of it valid Unicode."""
    for row in read(data, file_format):
        if isinstance(row, RowFault):
            assert row.message.encode("utf-8")
        else:
            assert isinstance(json.loads(row.prompt_json.encode("utf-8")), str | list)
            assert isinstance(json.loads(row.columns_json.encode("utf-8")), dict)


PIECES = (
    b'"',
    b",",
    b";",
    b"\n",
    b"\r\n",
    b"a",
    b"\xff",
    b"\x00",
    b"[",
    b"]",
    b"{",
    b"}",
    b'{"prompt":"a"}',
    b"\\u",
    b"1e9",
)


@given(st.sampled_from(["json", "csv", ""]), st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
@settings(max_examples=400, deadline=None)
def test_any_bytes_give_rows_and_faults_and_nothing_else(file_format: str, data: bytes) -> None:
    start = {"json": b"[", "csv": b"prompt,b\n", "": b""}[file_format]
    assert_rows_and_faults(start + data, file_format)


json_rows = st.fixed_dictionaries(
    {"prompt": st.text(min_size=1).map(lambda text: f"{text}?")},
    optional={
        "answer": st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        "n": st.none(),
    },
)


@given(st.lists(json_rows, min_size=1, max_size=5), st.sampled_from([None, 1]))
@settings(max_examples=100, deadline=None)
def test_a_list_of_any_rows_comes_back(rows: list[dict[str, Any]], indent: int | None) -> None:
    found = values(json.dumps(rows, indent=indent, ensure_ascii=False).encode("utf-8", "replace"), "json")
    assert json.dumps(found, sort_keys=True) == json.dumps(rows, sort_keys=True)


def test_rows_of_a_json_list_that_go_over_blocks_come_whole() -> None:
    rows = [{"prompt": "x" * size, "n": size} for size in (1, 300_000, 5, 1_000_000, 262_144, 2)]
    assert values(json.dumps(rows).encode()) == rows


def methods(row: dict[str, Any]) -> set[str]:
    (found,) = read(json.dumps(row).encode())
    assert isinstance(found, Row), found
    return set(found.methods)


ANSWERED = [*TURNS, {"role": "assistant", "content": "5"}]


def test_shapes_for_imitation_get_their_prompt() -> None:
    messages = values(json.dumps({"messages": ANSWERED, "source": "x"}).encode())[0]
    assert messages == {"prompt": TURNS, "messages": ANSWERED, "source": "x"}
    sharegpt = {"conversations": [{"from": "human", "value": "2 + 3?"}, {"from": "gpt", "value": "5"}]}
    assert values(json.dumps(sharegpt).encode())[0] == {"prompt": TURNS, "messages": ANSWERED}
    alpaca = {"instruction": "Add.", "input": "2 and 3", "output": "5"}
    assert values(json.dumps(alpaca).encode())[0] == {
        "prompt": "Add.\n\n2 and 3",
        "completion": "5",
        **alpaca,
    }
    bare = values(json.dumps({"instruction": "Add 2 and 3.", "output": "5"}).encode())[0]
    assert bare["prompt"] == "Add 2 and 3."
    turn = {"prompt": TURNS, "completion": [ANSWERED[-1]]}
    assert values(json.dumps(turn).encode())[0]["completion"] == "5"
    assert values(json.dumps({"text": "Once."}).encode())[0] == {"prompt": "", "text": "Once."}


def test_rows_say_what_they_can_be_trained_by() -> None:
    assert methods({"prompt": "a", "answer": 5}) == {"grpo"}
    assert methods({"prompt": "a", "completion": "b"}) == {"grpo", "sft"}
    assert methods({"prompt": "a", "completion": ""}) == {"grpo"}
    assert methods({"messages": ANSWERED}) == {"grpo", "sft"}
    assert methods({"instruction": "a", "output": "b"}) == {"grpo", "sft"}
    assert methods({"text": "a"}) == {"sft"}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"messages": TURNS}, "does not end with an answer of the assistant"),
        ({"messages": [ANSWERED[-1]]}, "nothing before the answer"),
        ({"messages": "hello"}, 'messages is "hello"; it must be a list of messages'),
        ({"messages": [{"role": "user", "content": 3}, ANSWERED[-1]]}, "messages[0].content is 3"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, 'conversations[0].from is "alien"'),
        ({"conversations": [{"role": "user"}]}, 'a turn has "from" and "value"'),
        ({"instruction": "a"}, "output is null; it must be text"),
        ({"instruction": "a", "output": "b", "input": 3}, "input is 3"),
        ({"text": ""}, "it must be text, and not empty"),
        ({"prompt": "a", "completion": [{"role": "assistant"}]}, "completion[0] has no content"),
    ],
)
def test_a_wrong_shape_is_told(row: dict[str, Any], told: str) -> None:
    ((_, message),) = faults(json.dumps(row).encode())
    assert told in message
