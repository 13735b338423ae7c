"""Rows of `plaudit reward test`: what is read, and what each wrong line is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plaudit.errors import InvalidArgumentError
from plaudit.trial._rows import TrialRow, read_rows
from plaudit.types.scoring import ChatMessage


def rows_of(tmp_path: Path, *lines: object, column: str | None = None) -> list[TrialRow]:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return read_rows(path, column, 100)


def test_prompts_and_completions_in_their_forms(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Hi"}]
    said = [{"role": "assistant", "content": "a chat"}]
    rows = rows_of(
        tmp_path,
        {"prompt": "Q", "answer": 3, "completion": "text"},
        "",
        {"prompt": turns, "completions": ["one", said]},
        {"prompt": turns, "completion": said},
        {"prompt": "Q", "said": ["x"], "completion": "column"},
    )
    assert [row.line for row in rows] == [1, 3, 4, 5]
    assert [row.completions for row in rows[:3]] == [("text",), ("one", "a chat"), ("a chat",)]
    assert rows[0].prompt.columns == {"answer": 3}
    assert rows[1].prompt.messages == (ChatMessage("user", "Hi"),)
    assert rows[3].prompt.columns == {"said": ["x"]}


def test_a_row_without_completions_gets_probes(tmp_path: Path) -> None:
    [row] = rows_of(tmp_path, {"prompt": "Q", "solution": 12})
    assert row.are_probes
    assert "" in row.completions
    assert "12" in row.completions
    assert any("\\boxed{12}" in text for text in row.completions)
    assert any(len(text) > 1000 for text in row.completions)


def test_all_wrong_lines_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        rows_of(
            tmp_path,
            "{",
            [1],
            {"answer": 1},
            {"prompt": 3},
            {"prompt": [{"role": "user"}]},
            {"prompt": "Q", "completion": 3},
            {"prompt": "fine"},
            '{"prompt": "Q", "a": "\\ud800"}',
        )
    lines = [violation.field.rpartition(":")[2] for violation in caught.value.violations]
    assert lines == ["1", "2", "3", "4", "5", "6", "8"]


def test_a_named_column_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="has no column said"):
        rows_of(tmp_path, {"prompt": "Q", "completion": "x"}, column="said")


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="holds no rows"):
        rows_of(tmp_path, "")


def test_numbers_that_json_does_not_have_are_told_by_line_and_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        rows_of(
            tmp_path,
            '{"prompt": "Q", "answer": 1.5}',
            '{"prompt": "Q", "answer": NaN}',
            '{"prompt": "Q", "levels": [1, {"a": -Infinity}]}',
            '{"prompt": "Q", "answer": 1e999}',
        )
    told = {v.field.rpartition(":")[2]: v.message for v in caught.value.violations}
    assert list(told) == ["2", "3", "4"]
    assert told["2"].startswith('"answer" is NaN, and JSON has neither NaN nor infinities')
    assert told["3"].startswith('"levels" is [1, {"a": -Infinity}]')
    assert told["4"].startswith('"answer" is Infinity')
