"""Opens files below the artifact root, and nothing that leads out of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from plaudit.errors import NotFoundError, UnavailableError
from plaudit.types.validation import shown


def open_below(root: Path, address: str) -> int:
    """Opens the file at `address`, relative to `root`, for reading; the descriptor is the caller's to close.

    Raises NotFoundError for an address that is absolute, has empty parts, `.` or `..`, passes a symbolic
    link, or names no regular file; UnavailableError (ARTIFACT_UNREADABLE) where it cannot be read. Blocks.
    """
    parts = address.split("/")
    if "\\" in address or "\0" in address or any(part in ("", ".", "..") for part in parts):
        raise _not_there(address)
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                inner = os.open(
                    part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
                )
                os.close(folder)
                folder = inner
            # Without waiting for a writer, where a pipe of this name lies there.
            file = os.open(
                parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )
        finally:
            os.close(folder)
    except PermissionError as error:
        raise UnavailableError(
            f"{shown(address)} cannot be read ({error.strerror}); look at the rights of the artifact root",
            reason="ARTIFACT_UNREADABLE",
        ) from None
    except OSError:
        # Not there, a link, or a name that no file system takes.
        raise _not_there(address) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _not_there(address)
    return file


def _not_there(address: str) -> NotFoundError:
    return NotFoundError(f"there is no file {shown(address)} any more below the artifact root", field="path")
