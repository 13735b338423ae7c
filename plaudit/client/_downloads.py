"""Files on their way to a folder of the caller's: resumed, verified, and never complete before they are."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Protocol, TypeVar

from plaudit.client import models
from plaudit.errors import FailedPreconditionError, InternalError, InvalidArgumentError
from plaudit.types.validation import shown

if sys.platform != "win32":
    import fcntl

PARTIAL_ENDING: Final = ".partial"
"""Of a file that is not complete; what is there is built upon when the download is repeated."""

_READ_BYTES: Final = 1024 * 1024
_MOST_NAMED: Final = 3

Result = TypeVar("Result")

FetchFrom = Callable[[str, int], AsyncIterator[bytes]]
"""The bytes of the file at a path from an offset on."""


class Offload(Protocol):
    """Calls what takes long on files where it keeps nobody else waiting."""

    def __call__(self, function: Callable[..., Result], *arguments: object) -> Awaitable[Result]:
        """The result of the function."""


async def download_files(
    files: Iterable[models.ModelFile],
    folder: Path,
    fetch: FetchFrom,
    progress: Callable[[models.DownloadProgress], object],
    offload: Offload,
    *,
    overwrite: bool = False,
) -> None:
    """Brings `files` into `folder`. A file that is there already, with the right bytes, is left alone.

    Raises InvalidArgumentError where a path leads out of the folder, FailedPreconditionError where the folder
    cannot be used (FOLDER_UNUSABLE) or has files of these names with other bytes and `overwrite` is false
    (FOLDER_TAKEN), and InternalError (DOWNLOAD_DAMAGED) where what came is not what was announced, which is
    then removed.
    """
    wanted = [(file, _place(folder, file.path)) for file in files]
    total = sum(file.size_bytes for file, _ in wanted)
    done = 0

    def tell(path: str, received: int) -> None:
        progress(models.DownloadProgress(path, done + received, total))

    try:
        await offload(_make_folders, [folder, *(place.parent for _, place in wanted)])
        there = {file.path for file, place in wanted if await offload(_is_there, file, place)}
        if not overwrite:
            # A file has its name only once it is whole, so that none of a broken download is among them.
            _refuse_others(folder, [place for file, place in wanted if file.path not in there])
        for file, place in wanted:
            if file.path not in there:
                await _download(file, place, fetch, tell, offload)
            done += file.size_bytes
            tell(file.path, 0)
    except OSError as error:
        raise FailedPreconditionError(
            f"{error.filename or folder} cannot be written ({error.strerror}); make room, or choose another "
            "folder: what has arrived is built upon",
            reason="FOLDER_UNUSABLE",
        ) from None


def _place(folder: Path, path: str) -> Path:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or any(part in ("..", ".") for part in parts):
        raise InvalidArgumentError.of(
            "path", f"{shown(path)} of the model leads out of the folder, and is refused"
        )
    return folder.joinpath(*parts)


def _refuse_others(folder: Path, missing: Iterable[Path]) -> None:
    taken = [str(place.relative_to(folder)) for place in missing if place.exists()]
    if taken:
        named = ", ".join(taken[:_MOST_NAMED]) + (" and others" if len(taken) > _MOST_NAMED else "")
        raise FailedPreconditionError(
            f"{folder} holds {named} of something else, which would be overwritten; choose another folder, "
            "or say that they may be (--force, or overwrite=True)",
            reason="FOLDER_TAKEN",
        )


def _make_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)


def _is_there(file: models.ModelFile, place: Path) -> bool:
    if not place.is_file() or place.stat().st_size != file.size_bytes:
        return False
    with place.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


async def _download(
    file: models.ModelFile,
    place: Path,
    fetch: FetchFrom,
    tell: Callable[[str, int], object],
    offload: Offload,
) -> None:
    with _part_of(place) as partial:
        there, received, digest = await _fetch(file, partial, fetch, tell, offload)
        if there and digest != file.sha256:
            # What was built upon may have been of another model.
            partial.unlink()
            _, received, digest = await _fetch(file, partial, fetch, tell, offload)
        if digest != file.sha256:
            partial.unlink()
            raise InternalError(
                f"{file.path} arrived with {received:,} bytes (sha256 {digest}), and was announced with "
                f"{file.size_bytes:,} (sha256 {file.sha256}); it is removed, download the model again",
                reason="DOWNLOAD_DAMAGED",
            )
        partial.replace(place)


async def _fetch(
    file: models.ModelFile,
    partial: Path,
    fetch: FetchFrom,
    tell: Callable[[str, int], object],
    offload: Offload,
) -> tuple[int, int, str]:
    """Completes what is there of a file: its bytes before, its bytes now, and the SHA-256 of all of them."""
    digest = hashlib.sha256()
    with partial.open("a+b") as stream:
        received = there = await offload(_build_upon, stream, file, digest)
        if received < file.size_bytes:
            async for chunk in fetch(file.path, received):
                stream.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                tell(file.path, received)
                if received > file.size_bytes:
                    break
        stream.flush()
        await offload(os.fsync, stream.fileno())
    return there, received, digest.hexdigest()


@contextmanager
def _part_of(place: Path) -> Iterator[Path]:
    """Where the file grows until it is whole: what an earlier download left of it, or a file of its own while
    another download builds upon that.
    """
    left = place.with_name(f".{place.name}{PARTIAL_ENDING}")
    with _claimed(left) as is_ours:
        if is_ours:
            yield left
            return
    own = place.with_name(f".{place.name}.{secrets.token_hex(8)}{PARTIAL_ENDING}")
    try:
        yield own
    finally:
        own.unlink(missing_ok=True)


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Whether nobody else writes the file, and nobody will while the context is open."""
    if sys.platform == "win32":
        yield True
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have finished meanwhile, and given it its name.
            is_ours = path.exists() and os.path.samestat(os.fstat(handle), path.stat())
        except BlockingIOError:
            is_ours = False
        yield is_ours
    finally:
        os.close(handle)


def _build_upon(stream: IO[bytes], file: models.ModelFile, digest: Any) -> int:
    """How many bytes are there already, which are taken into `digest`."""
    if stream.seek(0, os.SEEK_END) > file.size_bytes:
        stream.truncate(0)
        return 0
    stream.seek(0)
    received = 0
    for block in _blocks(stream):
        digest.update(block)
        received += len(block)
    return received


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(_READ_BYTES):
        yield block
