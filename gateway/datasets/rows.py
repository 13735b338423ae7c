"""Rows of a JSONL file: read one by one in bounded memory, and checked, so that a wrong one is named.

A row is a JSON object with a `prompt`, which is text or a list of chat turns, and any other columns. Whatever
the bytes are, reading yields rows and faults and nothing else.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final, NoReturn, TypeAlias

from plaudit.types.validation import MAX_DEPTH, TOO_DEEP, json_fault, nests_deeper, shown

MAX_ROW_BYTES: Final = 4 * 1024 * 1024
"""Longest line: a row must fit the 4 MiB in which gRPC carries it to a reward server that sets no limit."""
MAX_NAME_LENGTH: Final = 128
"""Longest name of a column, in characters."""
ROLES: Final = ("system", "developer", "user", "assistant", "tool")

_BOM: Final = b"\xef\xbb\xbf"
_FOREIGN_STARTS: Final = {
    b"\x1f\x8b": "the file is compressed by gzip; send it decompressed",
    b"PK\x03\x04": "the file is a zip archive; send the JSONL file inside it",
    b"PAR1": "the file is Parquet; send JSONL, one JSON object a line",
    b"\xff\xfe": "the file is UTF-16; save it as UTF-8",
    b"\xfe\xff": "the file is UTF-16; save it as UTF-8",
}

ChatTurns: TypeAlias = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Row:
    """A row that is right. `prompt_json` and `columns_json` are its normal form; both are valid Unicode."""

    column_names: tuple[str, ...]
    prompt_json: str
    columns_json: str


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row that is wrong: `line` counts from 1, blank lines too, as an editor shows it."""

    line: int
    message: str


def read_jsonl(file: IO[bytes]) -> Iterator[Row | RowFault]:
    """Yields what each line of `file` holds; blank lines hold nothing.

    At most one line, of MAX_ROW_BYTES, is in memory at a time.
    """
    for number, line in enumerate(_lines(file), start=1):
        if number == 1:
            foreign = next((why for start, why in _FOREIGN_STARTS.items() if line.startswith(start)), None)
            if foreign is not None:
                yield RowFault(1, foreign)
                return
            line = line.removeprefix(_BOM)
        if len(line) > MAX_ROW_BYTES:
            yield RowFault(number, f"the row is longer than {MAX_ROW_BYTES:,} bytes; split it or shorten it")
        elif line.strip():
            try:
                yield row_of(_parse(line))
            except _WrongRow as fault:
                yield RowFault(number, fault.message)


def row_of(value: object) -> Row:
    """The row that a JSON object holds, or _WrongRow."""
    if isinstance(value, list):
        raise _WrongRow("the row is a JSON list, not an object; write one JSON object a line")
    if not isinstance(value, dict):
        raise _WrongRow(f"the row is {shown(value)}, not a JSON object; write one JSON object a line")
    if "prompt" not in value:
        raise _WrongRow(
            f'the row has no "prompt" (its columns: {shown(sorted(value))}); add it, as text or as '
            "a list of messages"
        )
    prompt = value.pop("prompt")
    _check_prompt(prompt)
    for name in value:
        if not name or len(name) > MAX_NAME_LENGTH:
            raise _WrongRow(
                f"{shown(name)} is no name for a column; a name has 1 to {MAX_NAME_LENGTH} characters"
            )
    return Row(tuple(value), _dump(prompt), _dump(value))


class _WrongRow(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines without their end; of a line that is too long, its first MAX_ROW_BYTES + 1 bytes or more."""
    while line := file.readline(MAX_ROW_BYTES + 2):
        ended = line.endswith(b"\n")
        yield line[:-1] if ended else line
        while not ended and (rest := file.readline(MAX_ROW_BYTES)):
            ended = rest.endswith(b"\n")


def _parse(line: bytes) -> object:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _WrongRow(
            f"the row is not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start + 1}); "
            "save the file as UTF-8"
        ) from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _WrongRow(f"the row is not JSON: {error.msg} at column {error.colno}") from None
    except ValueError:
        # Python reads no whole number of more digits than this.
        limit = sys.get_int_max_str_digits()
        raise _WrongRow(
            f"the row holds a whole number of more than {limit:,} digits; write it as text"
        ) from None
    except RecursionError:
        raise _WrongRow(f"the row {TOO_DEEP}") from None
    # Brackets are counted first because the walk takes as long as the parsing.
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and nests_deeper(value, MAX_DEPTH):
        raise _WrongRow(f"the row {TOO_DEEP}")
    if b"\\u" in line and (fault := json_fault(value)) is not None:
        # Only an escape can write half of a surrogate pair.
        raise _WrongRow(f"the row {fault}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _WrongRow(f"the name {shown(twice)} stands twice in one object; keep one of the two")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _WrongRow(f"{text[:40]} is beyond the range of a number; write it smaller, or as text")
    return value


def _constant(text: str) -> NoReturn:
    raise _WrongRow(f"{text} is no JSON value; write null, or leave the column out")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def _check_prompt(prompt: object) -> None:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise _WrongRow("the prompt is empty; write text, or a list of messages")
        return
    if not isinstance(prompt, list):
        raise _WrongRow(f"the prompt is {shown(prompt)}; it must be text or a list of messages")
    if not prompt:
        raise _WrongRow("the prompt is an empty list; it needs at least one message")
    for index, turn in enumerate(prompt):
        _check_turn(turn, f"prompt[{index}]")
    last = prompt[-1]
    if last["role"] == "assistant":
        raise _WrongRow(
            "the prompt ends with a turn of the assistant, which is what the model is to write; "
            "end it with a turn of the user"
        )
    if not last["content"].strip():
        raise _WrongRow("the last turn of the prompt is empty; write what the model is to answer")


def _check_turn(turn: object, where: str) -> None:
    if not isinstance(turn, dict):
        raise _WrongRow(f'{where} is {shown(turn)}; a message is {{"role": ..., "content": ...}}')
    missing = [name for name in ("role", "content") if name not in turn]
    if missing:
        raise _WrongRow(f'{where} has no {" and no ".join(missing)}; a message has "role" and "content"')
    unknown = sorted(turn.keys() - {"role", "content"})
    if unknown:
        raise _WrongRow(
            f'{where} has {shown(unknown[0])}, which is not honoured; a message has only "role" and "content"'
        )
    if turn["role"] not in ROLES:
        raise _WrongRow(f"{where}.role is {shown(turn['role'])}; it must be one of {', '.join(ROLES)}")
    if not isinstance(turn["content"], str):
        raise _WrongRow(f"{where}.content is {shown(turn['content'])}; it must be text")


_dump: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
