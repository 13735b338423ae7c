"""What commands print: tables for people, JSON for programs, and never a terminal's control characters."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from plaudit.client import Client


_RETRY_SECONDS: Final = 3.0
_WIDE: Final = 1_000

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address", help="The gateway's gRPC address. Default: PLAUDIT_ADDRESS, or this machine's."
    ),
]


def connect(address: str | None) -> Client:
    """A client that gives up soon where no gateway listens: a person waits for the answer."""
    # Here, and not above: help is printed without gRPC, which takes longer to load than the rest.
    from plaudit.client import Client

    # Commands tell by themselves what a program would find in its log.
    logging.getLogger("plaudit.client").setLevel(logging.ERROR)
    return Client(address, retry_seconds=_RETRY_SECONDS)


def printable(text: str) -> str:
    """Text of other people with control characters made visible, so that it cannot steer a terminal."""
    return "".join(
        c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"
        for c in text
    )


def print_json(value: object) -> None:
    """Prints one JSON document. NaN and infinities become the strings that protobuf's JSON uses."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, indent=2) + "\n")


def print_json_line(value: object) -> None:
    """Prints one JSON document on a line, at once, where others follow."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def plain(value: object) -> Any:
    """Models, times and enums as JSON-like data."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="python"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows under headings."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        # The first column is what people copy.
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    for row in rows:
        # A line end in somebody's text must not look like another row.
        table.add_row(*(Text(printable(cell(value)).replace("\n", " ⏎ ")) for value in row))
    console().print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Prints names and values, one a line; empty values are left out."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        # Lines that follow are set in, so that none of somebody's text looks like another field.
        text = printable(cell(value)).replace("\n", "\n" + " " * (width + 2))
        if text:
            sys.stdout.write(f"{name.ljust(width)}  {text}\n")


def cell(value: object) -> str:
    """A value as people read it: local time, four digits."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Enum):
        return str(value.value)
    return str(value)


def console() -> Console:
    """The terminal, or plain text, a row a line, where stdout is none. NO_COLOR is honoured by rich."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else _WIDE)
