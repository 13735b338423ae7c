"""Scored completions: read from the Parquet files that trainers wrote, a page at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from gateway.pages import Page
from gateway.store.completions import CompletionFile
from plaudit.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from plaudit.types.scoring import ChatMessage, Completion, FinishReason, Prompt
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
class ScorableCompletion:
    """A completion with all that a reward needs of it and of its prompt."""

    scored: ScoredCompletion
    prompt: Prompt
    completion: Completion


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

    async def scorable(self, file: CompletionFile, offset: int, count: int) -> list[ScorableCompletion]:
        """At most `count` completions of a file from row `offset` on, to be scored again.

        Raises as `page` does, and FailedPreconditionError (reason NOT_SCORABLE) for a file that does not hold
        what rewards need.
        """
        async with self._reading:
            return await asyncio.to_thread(self._read_scorable, file, offset, count)

    def _read(self, file: CompletionFile, offset: int, count: int) -> list[ScoredCompletion]:
        with unreadable(f"the completions of step {file.step}", file.uri):
            return [completion_of(row) for row in read_rows(self._root, file.uri, offset, count, COLUMNS)]

    def _read_scorable(self, file: CompletionFile, offset: int, count: int) -> list[ScorableCompletion]:
        with unreadable(f"the completions of step {file.step}", file.uri):
            columns = [*COLUMNS, *_CONTEXT_COLUMNS]
            try:
                rows = read_rows(self._root, file.uri, offset, count, columns)
            except MissingColumnsError as error:
                raise FailedPreconditionError(
                    f"the completions of step {file.step} were stored by an older version, without "
                    f"{', '.join(error.names)}, which rewards need; only newer ones can be scored again",
                    reason="NOT_SCORABLE",
                ) from None
            return [_scorable(row) for row in rows]


class MissingColumnsError(Exception):
    """A Parquet file lacks columns."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"no columns {', '.join(names)}")
        self.names = names


def read_rows(
    artifact_root: Path, uri: str, offset: int, count: int, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """At most `count` rows of a Parquet file below the artifact root, from row `offset` on.

    Blocks. Raises OSError or ValueError where it cannot be read, and MissingColumnsError.
    """
    path = (artifact_root / uri).resolve()
    if not path.is_relative_to(artifact_root):
        raise ValueError("the file lies outside the artifact root")
    with pq.ParquetFile(path) as parquet:
        missing = [name for name in columns if name not in parquet.schema_arrow.names]
        if missing:
            raise MissingColumnsError(missing)
        return _rows(parquet, offset, count, list(columns))


@contextlib.contextmanager
def unreadable(what: str, uri: str) -> Iterator[None]:
    """Within: a file that is not there or is damaged is an UnavailableError (reason ARTIFACT_UNREADABLE)."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MissingColumnsError) as error:
        raise UnavailableError(
            f"{what} cannot be read from {uri} under the artifact root: {error}; restore the file, or list "
            "other steps",
            reason="ARTIFACT_UNREADABLE",
        ) from error


def _rows(parquet: Any, offset: int, count: int, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before = 0
    for group in range(parquet.metadata.num_row_groups):
        size = parquet.metadata.row_group(group).num_rows
        if before + size > offset:
            for batch in parquet.iter_batches(_ROWS_IN_MEMORY, row_groups=[group], columns=columns):
                first = max(offset - before, 0)
                rows.extend(batch.slice(first, count - len(rows)).to_pylist())
                before += batch.num_rows
                if len(rows) == count:
                    return rows
        else:
            before += size
    return rows


def completion_of(row: dict[str, Any]) -> ScoredCompletion:
    """The completion in a row of COLUMNS."""
    return ScoredCompletion(**{**row, "outcomes": outcomes_of(row["outcomes"])})


def outcomes_of(text: str) -> tuple[RewardOutcome, ...]:
    """Outcomes from the JSON text that files keep them in."""
    return tuple(
        RewardOutcome(
            name=outcome["name"],
            status=outcome["status"],
            value=outcome.get("value"),
            explanation=outcome.get("explanation") or "",
            scored_at=datetime.fromisoformat(outcome["scored_at"]) if outcome.get("scored_at") else None,
        )
        for outcome in json.loads(text)
    )


def _scorable(row: dict[str, Any]) -> ScorableCompletion:
    context = {name: row.pop(name) for name in _CONTEXT_COLUMNS}
    scored = completion_of(row)
    messages = tuple(ChatMessage(turn["role"], turn["content"]) for turn in json.loads(context["messages"]))
    return ScorableCompletion(
        scored=scored,
        prompt=Prompt(scored.group_id, messages, json.loads(context["columns"]), scored.prompt_text),
        completion=Completion(
            completion_id=scored.completion_id,
            text=scored.completion_text,
            token_count=scored.token_count,
            finish_reason=FinishReason.LENGTH if scored.truncated else FinishReason.STOP,
            prefill=context["prefill"],
            raw_text=context["raw_text"],
        ),
    )


_READS_AT_ONCE: Final = 4
_ROWS_IN_MEMORY: Final = 256
_TOKEN: Final = re.compile(r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,17})", re.ASCII)
COLUMNS: Final = (
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
)
"""Of a file of completions, as they are shown."""

_CONTEXT_COLUMNS: Final = ("messages", "columns", "prefill", "raw_text")
