"""What a run of the suite is told."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.validation import json_fault
from reward_service.conformance._target import Target

_MAX_ROWS: Final = 10_000
_MAX_ROWS_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Expected:
    """A completion of a row, and its score; None where the reward does not apply."""

    completion: str
    score: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a dataset: the prompt as chat turns (role, content), and the other columns."""

    prompt: Sequence[tuple[str, str]]
    columns: dict[str, Any]
    expected: Sequence[Expected] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What is tested, and how.

    `reward` empty: the first one that opens. `rows` empty: rows of the suite's own. `timeout`: the longest
    silence of the server, in seconds. `quick` sends less and leaves out what takes a minute. `rules`: ids of
    the rules to check, empty for all. `drain_command` or `drain_pid` make the server go away.
    """

    target: Target
    reward: str = ""
    config_json: str = ""
    rows: Sequence[Row] = ()
    timeout: float = 30.0
    quick: bool = False
    rules: Sequence[str] = field(default=())
    drain_command: str = ""
    drain_pid: int | None = None


def read_rows(path: Path) -> list[Row]:
    """Rows of a JSONL file: `prompt`, any columns, and `expected`, a list of {"completion", "score"}.

    Raises InvalidArgumentError with every wrong line.
    """
    try:
        if path.stat().st_size > _MAX_ROWS_BYTES:
            raise InvalidArgumentError.of(
                "rows", f"{path} is larger than {_MAX_ROWS_BYTES // 2**20} MiB; give a part of it"
            )
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError.of("rows", f"{path} cannot be read: {error}") from None
    rows: list[Row] = []
    wrong: list[FieldViolation] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(_row_of(json.loads(line)))
        except (ValueError, RecursionError) as error:
            wrong.append(FieldViolation(f"rows, line {number}", str(error)))
    if not rows and not wrong:
        wrong.append(FieldViolation("rows", f"{path} holds no rows"))
    if len(rows) > _MAX_ROWS:
        wrong.append(FieldViolation("rows", f"{path} holds more than {_MAX_ROWS} rows; give a part of them"))
    if wrong:
        raise InvalidArgumentError(wrong[:20])
    return rows


def row_of_columns(columns_json: str) -> Row:
    """A row with these columns, given as a JSON object. Raises InvalidArgumentError."""
    columns = object_of("columns", columns_json, '{"answer": 72}')
    return Row((("user", "What is 6 times 12?"),), columns)


def object_of(option: str, text: str, example: str) -> dict[str, Any]:
    """A JSON object that an option gives. Raises InvalidArgumentError, also where no server could get it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError.of(option, f"is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgumentError.of(option, f"must be a JSON object, for example {example}")
    fault = json_fault(value)
    if fault is not None:
        raise InvalidArgumentError.of(option, fault)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise InvalidArgumentError.of(
            option, "holds NaN, or a number beyond what a double is; JSON has neither"
        ) from None
    return value


def _row_of(data: Any) -> Row:
    if not isinstance(data, dict):
        raise ValueError('must be a JSON object, for example {"prompt": "What is 6 times 12?", "answer": 72}')
    columns = dict(data)
    prompt = columns.pop("prompt", None)
    expected = columns.pop("expected", [])
    if isinstance(prompt, str):
        turns: list[tuple[str, str]] = [("user", prompt)]
    elif isinstance(prompt, list) and all(isinstance(turn, dict) for turn in prompt):
        turns = [(str(turn.get("role", "")), str(turn.get("content", ""))) for turn in prompt]
    else:
        raise ValueError('prompt must be text or a list of {"role", "content"}')
    if not isinstance(expected, list):
        raise ValueError('expected must be a list of {"completion", "score"}')
    return Row(tuple(turns), columns, tuple(_expected_of(item) for item in expected))


def _expected_of(item: Any) -> Expected:
    if not isinstance(item, dict) or set(item) != {"completion", "score"}:
        raise ValueError('expected must hold objects of "completion" and "score"')
    completion, score = item["completion"], item["score"]
    if not isinstance(completion, str):
        raise ValueError("expected: completion must be text")
    if score is None:
        return Expected(completion, None)
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError("expected: score must be a finite number, or null where the reward does not apply")
    return Expected(completion, float(score))
