"""Reading JSONL: what is right is kept as it came, what is wrong is named by its line, and that is all."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.datasets.faults import RowFault
from gateway.datasets.formats import read_rows
from gateway.datasets.rows import MAX_ROW_BYTES, Row


def read(data: bytes) -> list[Row | RowFault]:
    return list(read_rows(io.BytesIO(data), "jsonl"))


def faults(data: bytes) -> list[tuple[int, str]]:
    return [(line_of(row), row.message) for row in read(data) if isinstance(row, RowFault)]


def line_of(fault: RowFault) -> int:
    return int(fault.place.removeprefix("line "))


def only_fault(data: bytes) -> str:
    ((line, message),) = faults(data)
    assert line == 1
    return message


def test_bom_crlf_and_blank_lines_are_what_editors_leave() -> None:
    rows = read(b'\xef\xbb\xbf{"prompt": "a", "answer": 72}\r\n\r\n   \n{"prompt": "b", "answer": 72.0}')
    assert rows == [
        Row(("answer",), '"a"', '{"answer":72}'),
        Row(("answer",), '"b"', '{"answer":72.0}'),
    ]


def test_lines_are_counted_as_an_editor_shows_them() -> None:
    assert [line for line, _ in faults(b'{"prompt":"a"}\n\n\nnonsense\n{"prompt":"b"}\n{}')] == [4, 6]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b"nonsense", "is not JSON"),
        (b'{"prompt": "a"', "is not JSON: Expecting ',' delimiter at column 15"),
        (b'{"prompt": "a"} {"prompt": "b"}', "Extra data"),
        (b"[1, 2]", "is a JSON list, not an object"),
        (b"42", "the row is 42, not a JSON object"),
        (b'{"question": "a"}', 'no "prompt" (its columns: ["question"])'),
        (b'{"prompt": ""}', "the prompt is empty"),
        (b'{"prompt": " \\n"}', "the prompt is empty"),
        (b'{"prompt": null}', "the prompt is null; it must be text or a list of messages"),
        (b'{"prompt": 7}', "the prompt is 7"),
        (b'{"prompt": []}', "the prompt is an empty list"),
        (b'{"prompt": ["hello"]}', 'prompt[0] is "hello"'),
        (b'{"prompt": [{"role": "user"}]}', "prompt[0] has no content"),
        (b'{"prompt": [{}]}', "prompt[0] has no role and no content"),
        (b'{"prompt": [{"role": "human", "content": "a"}]}', 'prompt[0].role is "human"; it must be one of'),
        (b'{"prompt": [{"role": ["user"], "content": "a"}]}', 'prompt[0].role is ["user"]'),
        (b'{"prompt": [{"role": "user", "content": ["a"]}]}', 'prompt[0].content is ["a"]; it must be text'),
        (b'{"prompt": [{"role": "user", "content": "a", "name": "x"}]}', 'has "name", which is not honoured'),
        (b'{"prompt": [{"role": "user", "content": " "}]}', "the last turn of the prompt is empty"),
        (
            b'{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
            "ends with a turn of the assistant",
        ),
        (b'{"prompt": "a", "answer": NaN}', "NaN is no JSON value"),
        (b'{"prompt": "a", "answer": [-Infinity]}', "-Infinity is no JSON value"),
        (b'{"prompt": "a", "answer": 1e999}', "1e999 is beyond the range of a number"),
        (b'{"prompt": "a", "answer": ' + b"9" * 5000 + b"}", "more than 4,300 digits"),
        (b'{"prompt": "a", "answer": 1, "answer": 2}', 'the name "answer" stands twice'),
        (b'{"prompt": "a", "b": {"c": 1, "c": 1}}', 'the name "c" stands twice'),
        (b'{"prompt": "a\xff"}', "is not UTF-8 (byte 0xff at position 14)"),
        (b'{"prompt": "\\ud83d"}', "half of a surrogate pair (\\ud83d)"),
        (b'{"prompt": "a", "\\udc00": 1}', "half of a surrogate pair (\\udc00)"),
        (b'{"prompt": "a", "": 1}', '"" is no name for a column'),
        (b'{"prompt": "a", "x": ' + b"[" * 70 + b"]" * 70 + b"}", "nested more than 64 levels deep"),
        (b'{"prompt": "a", "x": ' + b"[" * 200_000, "nested more than 64 levels deep"),
        (b'{"prompt": "' + b"a" * MAX_ROW_BYTES + b'"}', "longer than 4,194,304 bytes"),
        (b"\x1f\x8b\x08\x00", "compressed by gzip"),
        (b"PAR1\x15\x04", "the file is Parquet"),
        ('{"prompt": "a"}'.encode("utf-16"), "the file is UTF-16"),
    ],
)
def test_a_wrong_row_is_told_what_is_wrong_with_it(row: bytes, told: str) -> None:
    assert told in only_fault(row)


def test_brackets_in_text_are_no_nesting() -> None:
    prompt = "[" * 100 + "{" * 100
    (row,) = read(json.dumps({"prompt": prompt}).encode())
    assert isinstance(row, Row)
    assert json.loads(row.prompt_json) == prompt


def test_reading_goes_on_behind_a_line_that_is_too_long() -> None:
    rows = read(b"x" * (3 * MAX_ROW_BYTES) + b'\n{"prompt": "a"}\n')
    assert isinstance(rows[0], RowFault)
    assert rows[1] == Row((), '"a"', "{}")


def test_a_message_about_a_hostile_row_stays_short() -> None:
    names = {f"column {index}" * 10: index for index in range(1000)}
    assert len(only_fault(json.dumps(names).encode())) < 300


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), json_values, max_size=5), st.text(min_size=1))
@settings(max_examples=150, deadline=None)
def test_every_value_comes_back_as_it_went_in(columns: dict[str, object], prompt: str) -> None:
    columns.pop("prompt", None)
    row_data = {**columns, "prompt": f"{prompt}?"}
    (row,) = read(json.dumps(row_data).encode())
    # json.dumps writes ASCII, so text with half a surrogate pair gets here and is refused; none is drawn.
    assert isinstance(row, Row)
    assert json.loads(row.prompt_json) == f"{prompt}?"
    back = json.loads(row.columns_json)
    assert back == columns
    assert json.dumps(back) == json.dumps(columns)
    assert row.column_names == tuple(columns)


PIECES = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u", b"d83d", b"prompt", b'{"prompt":', b'"a"}'),
    *(b"\n", b"\r\n", b"\xef\xbb\xbf", b"NaN", b"1e400", b"-0", b"null", b"true", b" ", b"\x00", b"\xc3"),
    *(
        b"\xff",
        b'{"prompt":[{"role":"user","content":"x"}]}',
        b'"role"',
        b'"content"',
        b"9" * 4400,
        b"[" * 70,
    ),
)
pieces = st.sampled_from(PIECES)


@given(st.lists(pieces | st.binary(max_size=6), max_size=40).map(b"".join))
@settings(max_examples=400, deadline=None)
def test_any_bytes_give_rows_and_faults_and_nothing_else(data: bytes) -> None:
    last_line = 0
    for row in read(data):
        if isinstance(row, RowFault):
            assert line_of(row) > last_line
            last_line = line_of(row)
            row.message.encode("utf-8")
        else:
            prompt = json.loads(row.prompt_json.encode("utf-8"))
            assert isinstance(prompt, str | list) and prompt
            for value in json.loads(row.columns_json.encode("utf-8")).values():
                assert not (isinstance(value, float) and not math.isfinite(value))
