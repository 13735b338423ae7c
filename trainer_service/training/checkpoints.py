"""Checkpoints: complete or not there, with a manifest that says what belongs to them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from plaudit.errors import PlauditError
from plaudit.types.statuses import ErrorCode
from trainer_service.journal import CheckpointRemoved, CheckpointSaved, JournalEntry
from trainer_service.training.sealing import MANIFEST, digest, seal, sync

_FOLDER = re.compile(r"checkpoint-(\d{6,})")
_ATTEMPT = re.compile(r"attempt-(\d+)")


class CheckpointError(PlauditError):
    """A checkpoint cannot be used; the message names the file and what is wrong with it."""

    default_reason = "CHECKPOINT_ERROR"
    code = ErrorCode.MODEL_ERROR


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint: where it lies, and the step after which it was taken.

    `owes_evaluation`: the policy is to be evaluated after that step, and was not yet.
    """

    folder: Path
    step: int
    prompts_consumed: int
    owes_evaluation: bool = False


class CheckpointStore:
    """Writes the checkpoints of a run under `jobs/{job_id}/attempt-{n}/` and keeps the newest.

    Of a job the `keep` newest stay, those of its earlier attempts included. `announce` is told of each that
    is complete, and of each that is about to be removed, before its files go. Once a later attempt of the job
    has a store, this one removes nothing more: the later one may have started from any of them.
    """

    def __init__(
        self,
        artifact_root: Path,
        *,
        job_id: str,
        attempt: int,
        keep: int,
        announce: Callable[[JournalEntry], None],
    ) -> None:
        self._root = artifact_root
        self._job = PurePosixPath("jobs") / job_id
        self._attempt = attempt
        self._keep = keep
        self._announce = announce
        # Tells an earlier attempt that still runs, on a trainer out of reach, that it was superseded.
        (self._root / self._job / f"attempt-{attempt}").mkdir(parents=True, exist_ok=True)

    def save(
        self,
        step: int,
        prompts_consumed: int,
        write: Callable[[Path], None],
        *,
        owes_evaluation: bool = False,
    ) -> None:
        """Takes a checkpoint after `step`: `write` puts the files into a folder that then gets its name."""
        uri = self._job / f"attempt-{self._attempt}" / f"checkpoint-{step:06d}"
        folder = self._root / uri
        unfinished = folder.with_name(f".{folder.name}.unfinished")
        for leftover in (unfinished, folder):
            if leftover.exists():
                shutil.rmtree(leftover)
        unfinished.mkdir(parents=True)
        write(unfinished)
        facts = {"step": step, "prompts_consumed": prompts_consumed, "owes_evaluation": owes_evaluation}
        size, sha256 = seal(unfinished, facts)
        unfinished.rename(folder)
        sync(folder.parent)
        self._announce(CheckpointSaved(step, str(uri), size, sha256))
        self._prune()

    def _prune(self) -> None:
        if self._is_superseded():
            return
        for uri, step in self._all()[self._keep :]:
            self._announce(CheckpointRemoved(step, str(uri)))
            folder = self._root / uri
            # Renamed first: what is half deleted must not look like a checkpoint.
            doomed = folder.with_name(f".{folder.name}.removed")
            shutil.rmtree(doomed, ignore_errors=True)
            # Another attempt that has not noticed yet that it is over may remove the same one.
            with contextlib.suppress(FileNotFoundError):
                folder.rename(doomed)
        # What a killed process left half written or half deleted, this attempt's or an earlier one's.
        for leftover in (self._root / self._job).glob("attempt-*/.checkpoint-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _is_superseded(self) -> bool:
        attempts = (_ATTEMPT.fullmatch(folder.name) for folder in (self._root / self._job).iterdir())
        return any(int(match[1]) > self._attempt for match in attempts if match)

    def _all(self) -> list[tuple[PurePosixPath, int]]:
        """Checkpoints of the job, newest first."""
        found = []
        for folder in (self._root / self._job).glob("attempt-*/checkpoint-*"):
            attempt = _ATTEMPT.fullmatch(folder.parent.name)
            step = _FOLDER.fullmatch(folder.name)
            if attempt and step:
                found.append((int(attempt[1]), int(step[1]), folder))
        return [
            (PurePosixPath(folder.relative_to(self._root)), step)
            for _, step, folder in sorted(found, reverse=True)
        ]


def open_checkpoint(artifact_root: Path, uri: str) -> Checkpoint:
    """Verifies every file of the checkpoint at `uri`, relative to the artifact root.

    Raises CheckpointError where it is not there, leads out of the root, or is not what its manifest says.
    """
    folder = (artifact_root / uri).resolve()
    if not folder.is_relative_to(artifact_root.resolve()):
        raise CheckpointError(f"checkpoint {uri!r} lies outside of the artifact root")
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint at {uri!r} (no {MANIFEST} in it)") from None
    except ValueError:
        raise CheckpointError(f"{MANIFEST} of checkpoint {uri!r} is damaged; take an older one") from None
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file() or digest(path) != expected["sha256"]:
            raise CheckpointError(f"{name} of checkpoint {uri!r} is missing or damaged; take an older one")
    # One of an older version owes none.
    owes_evaluation = manifest.get("owes_evaluation", False)
    return Checkpoint(folder, manifest["step"], manifest["prompts_consumed"], owes_evaluation)


def newest_checkpoint(artifact_root: Path, attempt_uri: str) -> str | None:
    """Address of the newest checkpoint of an attempt, or None where it has taken none."""
    folders = [f for f in (artifact_root / attempt_uri).glob("checkpoint-*") if _FOLDER.fullmatch(f.name)]
    newest = max(folders, key=lambda folder: step_of(folder.name), default=None)
    return None if newest is None else f"{attempt_uri}/{newest.name}"


def step_of(uri: str) -> int:
    """The step that a checkpoint's address names."""
    match = _FOLDER.fullmatch(uri.rpartition("/")[2])
    assert match is not None, f"{uri} is no address of a checkpoint"
    return int(match[1])
