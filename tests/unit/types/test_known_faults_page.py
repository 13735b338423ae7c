"""The page on known faults: every row is shown by tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "known-faults.md"


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith(("| what went", "| ---"))]


def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_row_is_shown_by_tests_that_are_there() -> None:
    found = rows()
    assert len(found) > 50
    for row in found:
        assert len(row) == 3, row
        shown_by = row[2].split(", ")
        for shown in shown_by:
            named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown)
            assert named, f"{shown!r} is no address of a test"
            assert (ROOT / named[1]).is_file(), f"there is no {named[1]}"
            assert named[2] in names_in(named[1]), f"{named[1]} has no {named[2]}"
        assert len(set(shown_by)) == len(shown_by)


def test_no_fault_stands_there_twice() -> None:
    told = [row[0] for row in rows()]
    assert len(set(told)) == len(told)
    assert all(text.endswith(".") for row in rows() for text in row[:2])
