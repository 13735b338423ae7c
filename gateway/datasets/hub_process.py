"""A program that writes the rows of a dataset of the hub as JSONL.

A process of its own: the library is heavy, a download that hangs can be killed, and nothing of it runs in the
gateway. It reads a HubRequest as JSON from stdin. The first line that it writes is a HubHeader, each other
line a row. Where it fails, it writes why as the last line to stderr, and exits with status 3, or 4 where the
hub cannot be reached. Its memory is bounded: a file of a few hundred kB can unpack to gigabytes at once.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, time
from itertools import islice
from typing import Any, Final

FAILED: Final = 3
UNREACHABLE: Final = 4
MAX_MEMORY_BYTES: Final = 4 * 1000**3
"""Most that the process may hold: the library takes 0.3 GB of it, and a page of Parquet up to 2 GB."""

_UNREACHABLE_ERRORS: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "ReadTimeout"}
)
"""Names of classes of the HTTP and hub libraries."""


@dataclass(frozen=True, slots=True)
class HubRequest:
    """What to read. `limit` None: all rows. The token is in the environment, as HF_TOKEN."""

    dataset: str
    config_name: str | None
    split: str
    column_mapping: Mapping[str, str]
    limit: int | None


@dataclass(frozen=True, slots=True)
class HubHeader:
    """What was found: columns by their new names, where the hub tells them, and rows, where it tells them."""

    columns: tuple[str, ...] | None
    num_rows: int | None


class _UnreadableError(Exception):
    """Why the dataset cannot be read, for people."""


def main() -> int:
    """Reads, writes, and returns the exit status."""
    request = HubRequest(**json.load(sys.stdin))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    bound = MAX_MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, most))
    # A damaged file can crash the library.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _write(request)
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    except _UnreadableError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except MemoryError:
        sys.stderr.write(
            f"it takes more than {bound / 1000**3:g} GB of memory to read a part of it; download it, and "
            "upload it in smaller parts\n"
        )
        return FAILED
    except Exception as error:
        # Whatever the library or the hub has to say is told, without a traceback.
        text = " ".join(str(error).split()) or type(error).__name__
        sys.stderr.write(f"{type(error).__name__}: {text}\n")
        away = isinstance(error, ConnectionError | TimeoutError)
        # Some are told as other errors, with the name in their text.
        told = f"{type(error).__name__} {text}"
        return UNREACHABLE if away or any(name in told for name in _UNREACHABLE_ERRORS) else FAILED
    return 0


def _write(request: HubRequest) -> None:
    import datasets

    token = os.environ.get("HF_TOKEN") or False
    found = datasets.load_dataset(
        request.dataset, request.config_name, split=request.split, streaming=True, token=token
    )
    columns = found.column_names
    if columns is not None:
        missing = [name for name in request.column_mapping if name not in columns]
        if missing:
            raise _UnreadableError(
                f"column_mapping names {', '.join(missing)}, and the dataset has {', '.join(columns)}"
            )
        columns = tuple(request.column_mapping.get(name, name) for name in columns)
    split = (found.info.splits or {}).get(request.split)
    num_rows = split.num_examples if split is not None else None
    _print(asdict(HubHeader(columns, num_rows)))
    for row in islice(_renamed(found, request.column_mapping), request.limit):
        _print(row)
    sys.stdout.flush()


def _renamed(rows: Any, mapping: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows, start=1):
        renamed = {mapping.get(name, name): value for name, value in row.items()}
        if len(renamed) != len(row):
            raise _UnreadableError(f"column_mapping gives two columns of row {number} one name")
        yield renamed


def _print(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    raise _UnreadableError(
        f"a column holds {type(value).__name__}, which JSON does not have; such a column cannot be connected"
    )


if __name__ == "__main__":
    sys.exit(main())
