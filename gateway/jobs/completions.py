"""Scored completions: read from the Parquet files that trainers wrote, a page at a time."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from gateway.jobs.job import Page
from gateway.store.completions import CompletionFile
from plaudit.errors import InvalidArgumentError, UnavailableError
from plaudit.types.validation import shown


@dataclass(frozen=True, slots=True)
class RewardOutcome:
    """What one reward said of a completion.

    `status` is "scored", "not_applicable" or a failure code (plaudit.types.scoring.FailureCode); `value` is
    None unless it was scored.
    """

    name: str
    status: str
    value: float | None = None
    explanation: str = ""
    scored_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """A completion with its scores.

    `reward` is None where it could not be scored, `advantage` where it moved nothing. `token_count` is in
    tokens of the policy's tokenizer.
    """

    step: int
    attempt: int
    group_id: str
    completion_id: str
    prompt_text: str
    completion_text: str
    token_count: int
    truncated: bool
    reward: float | None
    advantage: float | None
    outcomes: tuple[RewardOutcome, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page begins: row `offset` of the file of `step` and `attempt`."""

    step: int
    attempt: int
    offset: int

    @classmethod
    def parse(cls, page_token: str) -> Position | None:
        """The position in a token that `__str__` made; None for an empty one. Raises InvalidArgumentError."""
        if not page_token:
            return None
        if not _TOKEN.fullmatch(page_token):
            raise InvalidArgumentError.of(
                "page_token", f"{shown(page_token)} is no token of a page; list again from the start"
            )
        return cls(*(int(part) for part in page_token.split(".")))

    def __str__(self) -> str:
        return f"{self.step}.{self.attempt}.{self.offset}"


class CompletionReader:
    """Reads pages of completions, off the event loop, a few at a time and never a whole file."""

    def __init__(self, artifact_root: Path) -> None:
        self._root = artifact_root.resolve()
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)

    async def page(
        self, files: Sequence[CompletionFile], start: Position | None, limit: int
    ) -> Page[ScoredCompletion]:
        """At most `limit` completions of `files` (newest step first, those before `start` left out already).

        Raises UnavailableError (reason ARTIFACT_UNREADABLE) naming a file that is not there or is damaged.
        """
        items: list[ScoredCompletion] = []
        for file in files:
            is_start = start is not None and (file.step, file.attempt) == (start.step, start.attempt)
            offset = start.offset if start is not None and is_start else 0
            if len(items) == limit:
                return Page(items, str(Position(file.step, file.attempt, 0)))
            wanted = min(limit - len(items), file.row_count - offset)
            async with self._reading:
                items.extend(await asyncio.to_thread(self._read, file, offset, wanted))
            if offset + wanted < file.row_count:
                return Page(items, str(Position(file.step, file.attempt, offset + wanted)))
        return Page(items)

    def _read(self, file: CompletionFile, offset: int, count: int) -> list[ScoredCompletion]:
        path = (self._root / file.uri).resolve()
        try:
            if not path.is_relative_to(self._root):
                raise ValueError("the file lies outside the artifact root")
            with pq.ParquetFile(path) as parquet:
                return [_completion(row) for row in _rows(parquet, offset, count)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnavailableError(
                f"the completions of step {file.step} cannot be read from {file.uri} under the artifact "
                f"root: {error}; restore the file, or list other steps",
                reason="ARTIFACT_UNREADABLE",
            ) from error


def _rows(parquet: Any, offset: int, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before = 0
    for group in range(parquet.metadata.num_row_groups):
        size = parquet.metadata.row_group(group).num_rows
        if before + size > offset:
            for batch in parquet.iter_batches(_ROWS_IN_MEMORY, row_groups=[group], columns=_COLUMNS):
                first = max(offset - before, 0)
                rows.extend(batch.slice(first, count - len(rows)).to_pylist())
                before += batch.num_rows
                if len(rows) == count:
                    return rows
        else:
            before += size
    return rows


def _completion(row: dict[str, Any]) -> ScoredCompletion:
    outcomes = tuple(
        RewardOutcome(
            name=outcome["name"],
            status=outcome["status"],
            value=outcome.get("value"),
            explanation=outcome.get("explanation") or "",
            scored_at=datetime.fromisoformat(outcome["scored_at"]) if outcome.get("scored_at") else None,
        )
        for outcome in json.loads(row.pop("outcomes"))
    )
    return ScoredCompletion(**row, outcomes=outcomes)


_READS_AT_ONCE: Final = 4
_ROWS_IN_MEMORY: Final = 256
_TOKEN: Final = re.compile(r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,17})", re.ASCII)
_COLUMNS: Final = [
    "step",
    "attempt",
    "group_id",
    "completion_id",
    "prompt_text",
    "completion_text",
    "token_count",
    "truncated",
    "reward",
    "advantage",
    "outcomes",
]
