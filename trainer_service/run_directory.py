"""A run's directory on the trainer's disk: what is to be done (`start.json`), the journal, the output.

A directory appears whole and disappears whole, by one rename each; what a crash leaves of either has a name
that no run can have, and is removed at the next start.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from plaudit.service import private_opener
from plaudit.types.jobs import RunSpec
from plaudit.types.statuses import RunState
from trainer_service.journal import JournalWriter, RunStateChanged

ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""Ids become names of folders, of the run and of its artifacts."""

_START_FILE: Final = "start.json"
_STAGED: Final = ".staged-"
_DELETED: Final = ".deleted-"
_UNREADABLE: Final = ".unreadable-"


def check_artifact_path(value: str) -> str:
    """Returns `value` where it is a path under the artifact root, else raises ValueError."""
    parts = value.split("/")
    if "\\" in value or "\0" in value or any(part in ("", ".", "..") for part in parts):
        raise ValueError("must be a path below the artifact root: / between its parts, no . and no ..")
    return value


class RunStart(BaseModel):
    """What StartRun asked for; what `start.json` holds for the run's process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_id: str = Field(
        pattern=ID_PATTERN,
        description="Chosen by the gateway: letters, digits, dot, dash and underscore, at most 128.",
        examples=["run_01"],
    )
    job_id: str = Field(pattern=ID_PATTERN, description="Job of the run.", examples=["job_01"])
    attempt: int = Field(ge=1, description="1 for the first run of a job, then up.", examples=[1])
    spec: RunSpec = Field(description="What to train.")
    checkpoint_uri: Annotated[str, AfterValidator(check_artifact_path)] | None = Field(
        default=None, description="Folder under the artifact root to continue from. null: the base model."
    )
    artifact_root: Path = Field(description="Folder of datasets, checkpoints and completions.")
    secrets_dir: Path | None = Field(
        default=None, description="Folder of this machine's tokens, CAs and client certificates, by name."
    )

    def asks_the_same(self, other: RunStart) -> bool:
        """Whether both requests mean the same run; folders are this machine's matter."""
        folders = {"artifact_root", "secrets_dir"}
        return self.model_dump(exclude=folders) == other.model_dump(exclude=folders)


def read_start(run_dir: Path) -> RunStart:
    """What the run in `run_dir` is to do. Raises OSError, or ValueError where it makes no sense."""
    return RunStart.model_validate_json((run_dir / _START_FILE).read_bytes())


class RunDirectories:
    """All run directories of a trainer, under `root`. Calls block."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path_of(self, run_id: str) -> Path:
        """The directory of a run, which may not exist."""
        return self._root / run_id

    def create(self, start: RunStart) -> Path:
        """Makes a run's directory, durable and with the first entry in its journal, and returns it."""
        staged = self._root / f"{_STAGED}{start.run_id}"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(mode=0o700)
        with open(staged / _START_FILE, "xb", opener=private_opener) as file:
            file.write(start.model_dump_json(indent=2).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        with JournalWriter(staged) as journal:
            journal.append(RunStateChanged(RunState.STARTING))
        _sync(staged)
        final = staged.rename(self.path_of(start.run_id))
        _sync(self._root)
        return final

    def delete(self, run_id: str) -> None:
        """Removes a run's directory; one that does not exist is removed already."""
        doomed = self._root / f"{_DELETED}{run_id}"
        shutil.rmtree(doomed, ignore_errors=True)
        try:
            self.path_of(run_id).rename(doomed)
        except FileNotFoundError:
            return
        _sync(self._root)
        shutil.rmtree(doomed, ignore_errors=True)

    def set_aside(self, run_id: str) -> None:
        """Takes a directory that cannot be read out of the way, without deleting anything."""
        self.path_of(run_id).rename(self._root / f"{_UNREADABLE}{time.time_ns()}-{run_id}")

    def found(self) -> Iterator[Path]:
        """The directories of all runs, after removing what a crash left half made or half deleted."""
        for path in sorted(self._root.iterdir()):
            if path.name.startswith((_STAGED, _DELETED)):
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_dir() and not path.name.startswith("."):
                yield path


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
