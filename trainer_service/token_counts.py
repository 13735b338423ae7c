"""Counts of a dataset's tokens that are asked for: one process at a time, which dies with the service.

What was counted is kept by dataset, model, the model's revision and the limit, also over a restart.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import BaseModel, ConfigDict, Field

from plaudit.errors import ResourceExhaustedError, UnavailableError
from plaudit.types.jobs import DatasetReference
from plaudit.types.statuses import ErrorCode
from plaudit.types.token_statistics import TokenStatistics
from trainer_service.export_directory import ArtifactPath
from trainer_service.files import write_whole
from trainer_service.journal import RunError
from trainer_service.launchers.port import Launcher, LaunchError, ProcessExit, RunProcess
from trainer_service.sizing.model_files import model_folder

log = structlog.get_logger(__name__)

LONGEST_COUNT_SECONDS: Final = 900.0

_BUSY_RETRY_SECONDS: Final = 1.0
_RESULTS_KEPT: Final = 1024
_STOP_SECONDS: Final = 10.0
_REQUEST_FILE: Final = "request.json"
_RESULT_FILE: Final = "result.json"
_TOKENIZER_FILES: Final = ("tokenizer*", "chat_template*", "*.model", "vocab*", "merges*", "*tokens*.json")
"""What decides how a folder's model reads text."""


class TokenCountRequest(BaseModel):
    """Which prompts are to be counted, as which model reads them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_model: str = Field(
        min_length=1, max_length=512, description="As in a job.", examples=["builtin:tiny"]
    )
    dataset_uri: ArtifactPath = Field(description="File under the artifact root.")
    dataset_sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the file, hex.")
    row_count: int = Field(ge=1, description="Rows in it.")
    max_prompt_length: int = Field(
        ge=1, le=10_000_000, description="Tokens above which a prompt is shortened.", examples=[1024]
    )
    artifact_root: Path = Field(description="Folder of datasets.")

    @property
    def dataset(self) -> DatasetReference:
        """The dataset as training reads it."""
        return DatasetReference(uri=self.dataset_uri, sha256=self.dataset_sha256, row_count=self.row_count)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """What came of a count; both None: it is under way."""

    statistics: TokenStatistics | None = None
    error: RunError | None = None


@dataclass(slots=True)
class _Running:
    request: TokenCountRequest
    folder: Path
    process: RunProcess
    task: asyncio.Task[None] | None = None


class TokenCounts:
    """Starts counts and keeps their results. Made by `open`; used from one event loop."""

    def __init__(self, folder: Path, launcher: Launcher) -> None:
        self._work = folder / "work"
        self._kept = folder / "kept"
        self._launcher = launcher
        self._running: _Running | None = None
        self._failures: dict[str, RunError] = {}
        self._starting = asyncio.Lock()
        self._closing = False

    @classmethod
    async def open(cls, folder: Path, launcher: Launcher) -> TokenCounts:
        """Clears what an earlier service has left half done."""
        counts = cls(folder, launcher)
        for leftover in await asyncio.to_thread(_entries, counts._work):
            await launcher.kill_leftovers(leftover)
        await asyncio.to_thread(shutil.rmtree, counts._work, ignore_errors=True)
        await asyncio.to_thread(lambda: counts._kept.mkdir(mode=0o700, parents=True, exist_ok=True))
        return counts

    async def ask(self, request: TokenCountRequest) -> TokenCount:
        """Starts a count, or says what has become of it. A failure is told once, and then tried again.

        Raises ResourceExhaustedError (COUNT_BUSY).
        """
        async with self._starting:
            running = self._running
            if running is not None and running.request == request:
                return TokenCount()
            revision = await asyncio.to_thread(model_revision, request.base_model)
            kept = await asyncio.to_thread(self._read_kept, request, revision) if revision else None
            if kept is not None:
                return TokenCount(kept)
            if (failure := self._failures.pop(_name(request, ""), None)) is not None:
                return TokenCount(error=failure)
            if self._closing:
                raise UnavailableError("the trainer service is stopping; ask another trainer")
            if running is not None:
                raise ResourceExhaustedError(
                    f"the tokens of {running.request.dataset_uri} are being counted; ask again when they are",
                    reason="COUNT_BUSY",
                    retry_after=_BUSY_RETRY_SECONDS,
                )
            self._running = await self._start(request)
            return TokenCount()

    async def known(
        self, base_model: str, dataset_sha256: str, max_prompt_length: int
    ) -> TokenStatistics | None:
        """What was counted already; starts nothing. None: it was not."""
        revision = await asyncio.to_thread(model_revision, base_model)
        if revision is None:
            return None
        name = f"{_kept_name(dataset_sha256, base_model, revision, max_prompt_length)}.json"
        count = await asyncio.to_thread(read_token_count, self._kept, name)
        return None if count is None else count.statistics

    async def stop(self) -> None:
        """Kills what is under way, and takes no more."""
        self._closing = True
        async with self._starting:
            running = self._running
        if running is not None and running.task is not None:
            running.process.kill()
            await asyncio.wait({running.task}, timeout=_STOP_SECONDS)

    async def _start(self, request: TokenCountRequest) -> _Running:
        folder = self._work / _name(request, "")
        try:
            await asyncio.to_thread(_make_folder, folder, request)
            process = await self._launcher.launch(folder)
        except (OSError, LaunchError) as error:
            raise UnavailableError(f"the count cannot be started: {error}", retry_after=30.0) from error
        running = _Running(request, folder, process)
        running.task = asyncio.create_task(self._supervise(running), name=f"count {request.dataset_uri}")
        return running

    async def _supervise(self, running: _Running) -> None:
        # Nobody reads what it reports, but a line that is full would hold it up.
        reports = asyncio.create_task(_drain(running.process))
        ending = asyncio.create_task(running.process.wait())
        in_time = bool((await asyncio.wait({ending}, timeout=LONGEST_COUNT_SECONDS))[0])
        if not in_time:
            running.process.kill()
        ended = await ending
        reports.cancel()
        count = await asyncio.to_thread(read_token_count, running.folder)
        if count is None:
            count = TokenCount(error=_death_of(ended, in_time=in_time))
        if count.statistics is not None:
            await asyncio.to_thread(self._keep, running.request, count.statistics)
        elif count.error is not None and not self._closing:
            self._failures[_name(running.request, "")] = count.error
        await asyncio.to_thread(shutil.rmtree, running.folder, ignore_errors=True)
        log.info("a count of tokens ended", dataset=running.request.dataset_uri, status=ended.status)
        self._running = None

    def _read_kept(self, request: TokenCountRequest, revision: str) -> TokenStatistics | None:
        count = read_token_count(self._kept, f"{_name(request, revision)}.json")
        return None if count is None else count.statistics

    def _keep(self, request: TokenCountRequest, statistics: TokenStatistics) -> None:
        name = f"{_name(request, statistics.model_revision)}.json"
        write_token_count(self._kept, TokenCount(statistics), name)
        by_age = sorted(_entries(self._kept), key=lambda path: path.stat().st_mtime)
        for oldest in by_age[: max(len(by_age) - _RESULTS_KEPT, 0)]:
            oldest.unlink(missing_ok=True)


def model_revision(base_model: str) -> str | None:
    """Which version of a model's tokenizer lies on this machine: the hub's commit, or a digest of a folder's
    files; None where there is none. Blocks.
    """
    folder = model_folder(base_model)
    if folder is None:
        return None
    if folder.parent.name == "snapshots":
        return folder.name
    digest = hashlib.sha256()
    try:
        for file in sorted({file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern)}):
            digest.update(f"{file.name}\n".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    except OSError:
        return None
    return f"files-{digest.hexdigest()[:16]}"


def read_token_request(folder: Path) -> TokenCountRequest:
    """What is to be counted. Raises OSError, or ValueError where it makes no sense."""
    return TokenCountRequest.model_validate_json((folder / _REQUEST_FILE).read_bytes())


def write_token_count(folder: Path, count: TokenCount, name: str = _RESULT_FILE) -> None:
    """Says what came of it. Raises OSError. Blocks."""
    write_whole(folder / name, json.dumps(asdict(count)))


def read_token_count(folder: Path, name: str = _RESULT_FILE) -> TokenCount | None:
    """What came of it, or None where nothing was said. Blocks."""
    try:
        values: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
        statistics, error = values["statistics"], values["error"]
        return TokenCount(
            None if statistics is None else TokenStatistics(**statistics),
            None if error is None else RunError(ErrorCode(error["code"]), error["message"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _name(request: TokenCountRequest, revision: str) -> str:
    return _kept_name(request.dataset_sha256, request.base_model, revision, request.max_prompt_length)


def _kept_name(dataset_sha256: str, base_model: str, revision: str, max_prompt_length: int) -> str:
    counted = [dataset_sha256, base_model, revision, max_prompt_length]
    return hashlib.sha256(json.dumps(counted).encode()).hexdigest()[:32]


def _make_folder(folder: Path, request: TokenCountRequest) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    write_whole(folder / _REQUEST_FILE, request.model_dump_json())


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


async def _drain(process: RunProcess) -> None:
    async for _ in process.reports():
        pass


def _death_of(ended: ProcessExit, *, in_time: bool) -> RunError:
    if not in_time:
        return RunError(
            ErrorCode.PROCESS_DIED,
            f"the tokens were not counted within {LONGEST_COUNT_SECONDS:g} s; upload a part of the dataset "
            "as one of its own, and count that",
        )
    if ended.out_of_memory:
        return RunError(ErrorCode.OUT_OF_MEMORY, "memory ran out while the tokens were counted")
    how = f"signal {-ended.status}" if ended.status < 0 else f"status {ended.status}"
    output = f"; its last output was:\n{ended.output}" if ended.output else ""
    return RunError(ErrorCode.PROCESS_DIED, f"the process that counts ended with {how}{output}")
