"""Files of results: Parquet below the artifact root, old and new scores side by side."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.jobs.completions import (
    COLUMNS,
    RewardOutcome,
    completion_of,
    outcomes_of,
    read_rows,
    unreadable,
)
from gateway.pages import Page
from gateway.rescoring.rescore import RescoreResult
from gateway.store.rescores import RescorePart
from plaudit.errors import InvalidArgumentError
from plaudit.types.validation import shown

_SCHEMA: Final = pa.schema(
    [
        ("step", pa.int64()),
        ("attempt", pa.int32()),
        ("group_id", pa.string()),
        ("completion_id", pa.string()),
        ("prompt_text", pa.string()),
        ("completion_text", pa.string()),
        ("token_count", pa.int32()),
        ("truncated", pa.bool_()),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
        ("outcomes", pa.string()),
        # null: it could not be scored
        ("new_reward", pa.float64()),
        # JSON list in the order of the rescore's rewards
        ("new_outcomes", pa.string()),
    ]
)
_TOKEN: Final = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartPosition:
    """Where a page begins: row `offset` of the part `number`."""

    number: int = 0
    offset: int = 0

    @classmethod
    def parse(cls, page_token: str) -> PartPosition:
        """The position in a token that `__str__` made; the start for an empty one. InvalidArgumentError."""
        if not page_token:
            return cls()
        match = _TOKEN.fullmatch(page_token)
        if match is None:
            raise InvalidArgumentError.of(
                "page_token", f"{shown(page_token)} is no token of a page; list again from the start"
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}.{self.offset}"


class PartFiles:
    """Writes and reads files of results, off the event loop."""

    def __init__(self, artifact_root: Path) -> None:
        self._root = artifact_root.resolve()

    async def write(
        self, job_id: str, rescore_id: str, number: int, results: Sequence[RescoreResult]
    ) -> RescorePart:
        """Writes a part, in the place of one that a killed gateway left behind. Raises OSError."""
        return await asyncio.to_thread(self._write, job_id, rescore_id, number, results)

    async def page(
        self, parts: Sequence[RescorePart], start: PartPosition, limit: int
    ) -> Page[RescoreResult]:
        """At most `limit` results of consecutive `parts`, the first of which is that of `start`.

        Raises UnavailableError (reason ARTIFACT_UNREADABLE) naming a file that is not there or is damaged.
        """
        results: list[RescoreResult] = []
        for part in parts:
            if len(results) == limit:
                return Page(results, str(PartPosition(part.number)))
            offset = start.offset if part.number == start.number else 0
            wanted = max(0, min(limit - len(results), part.row_count - offset))
            results.extend(await asyncio.to_thread(self._read, part, offset, wanted))
            if offset + wanted < part.row_count:
                return Page(results, str(PartPosition(part.number, offset + wanted)))
        return Page(results)

    def _write(
        self, job_id: str, rescore_id: str, number: int, results: Sequence[RescoreResult]
    ) -> RescorePart:
        uri = PurePosixPath("jobs") / job_id / "rescores" / rescore_id / f"part-{number:06d}.parquet"
        path = self._root / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.unfinished")
        pq.write_table(pa.Table.from_pylist([_row(result) for result in results], _SCHEMA), unfinished)
        unfinished.replace(path)
        return RescorePart(number, str(uri), len(results))

    def _read(self, part: RescorePart, offset: int, count: int) -> list[RescoreResult]:
        with unreadable(f"part {part.number} of the results", part.uri):
            return [_result(row) for row in read_rows(self._root, part.uri, offset, count, _SCHEMA.names)]


def _row(result: RescoreResult) -> dict[str, Any]:
    completion = result.completion
    return {
        **{name: getattr(completion, name) for name in COLUMNS},
        "outcomes": _json(completion.outcomes),
        "new_reward": result.new_reward,
        "new_outcomes": _json(result.new_outcomes),
    }


def _json(outcomes: Sequence[RewardOutcome]) -> str:
    return json.dumps(
        [{**asdict(o), "scored_at": o.scored_at.isoformat() if o.scored_at else None} for o in outcomes],
        ensure_ascii=False,
    )


def _result(row: dict[str, Any]) -> RescoreResult:
    new_reward = row.pop("new_reward")
    new_outcomes = outcomes_of(row.pop("new_outcomes"))
    return RescoreResult(completion_of(row), new_reward, new_outcomes)
