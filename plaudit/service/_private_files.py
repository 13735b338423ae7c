"""Files and folders that only the user of a service can read, whatever umask it was started with."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077
_NO_FILE: Final = ":memory:"
"""What SQLite calls a database without a file."""


def private_folder(path: Path) -> None:
    """Makes a folder for this user only, and closes one of this user that is there and open to others.

    A folder above it that is not there is made so too. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    _close_to_others(path)


def private_file(path: Path) -> None:
    """Makes the empty file of a SQLite database, or closes the one that is there to others.

    What SQLite writes beside it gets its mode. The file of an open database is left unopened: to close it
    here would let go of the locks of the whole process. Where it cannot be made, SQLite tells.
    """
    if str(path) == _NO_FILE:
        return
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            _close_to_others(path.with_name(path.name + suffix))


def private_opener(path: str, flags: int) -> int:
    """For `open`: a file that it makes is for this user only."""
    return os.open(path, flags, 0o600)


def _close_to_others(path: Path) -> None:
    found = path.stat()
    if found.st_mode & _OTHERS and found.st_uid == os.geteuid():
        path.chmod(found.st_mode & ~_OTHERS & 0o7777)
