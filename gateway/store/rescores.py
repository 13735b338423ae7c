"""Rescores in the store."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aiosqlite

from gateway.jobs.job import JobError
from gateway.store._times import from_micros, optional_from_micros, optional_to_micros, to_micros
from plaudit.types.jobs import RewardBinding
from plaudit.types.rescores import RescoreSpec, RescoreStatus


@dataclass(frozen=True, slots=True)
class RescoreRecord:
    """A rescore as it is kept.

    `server_ids` are what the names in the spec stood for at creation; `next_step` and `next_row` say where to
    go on; `tally_json` holds the running sums of its summary.
    """

    key: int
    id: str
    job_key: int
    job_id: str
    spec: RescoreSpec
    server_ids: tuple[str, ...]
    status: RescoreStatus
    total_count: int
    tally_json: str
    created_at: datetime
    status_detail: str = ""
    error: JobError | None = None
    next_step: int = 0
    next_row: int = 0
    done_count: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RescorePart:
    """A Parquet file of results, at `uri` relative to the artifact root."""

    number: int
    uri: str
    row_count: int


_SELECT: Final = (
    "SELECT rescores.key, rescores.id, job_key, jobs.id, rescores.spec, server_ids, rescores.status, "
    "total_count, tally, rescores.created_at, rescores.status_detail, rescores.error_code, "
    "rescores.error_message, next_step, next_row, done_count, rescores.started_at, rescores.finished_at "
    "FROM rescores JOIN jobs ON jobs.key = job_key"
)


class Rescores:
    """Reads and writes rescores on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, rescore_id: str) -> RescoreRecord | None:
        """The rescore with this id, or None."""
        records = await self._all(f"{_SELECT} WHERE rescores.id = ?", (rescore_id,))
        return records[0] if records else None

    async def find_request(self, request_id: str) -> tuple[RescoreRecord, str] | None:
        """The rescore that this request made, and the digest of what was asked for."""
        rows = list(
            await self._connection.execute_fetchall(
                "SELECT id, request_sha256 FROM rescores WHERE request_id = ?", (request_id,)
            )
        )
        record = await self.find(rows[0][0]) if rows else None
        return (record, rows[0][1]) if record else None

    async def page(self, *, job_key: int | None, before_key: int | None, limit: int) -> list[RescoreRecord]:
        """At most `limit` rescores of a job (None: of all), newest first, made before `before_key`."""
        return await self._all(
            f"{_SELECT} WHERE (? IS NULL OR job_key = ?) AND (? IS NULL OR rescores.key < ?) "
            "ORDER BY rescores.key DESC LIMIT ?",
            (job_key, job_key, before_key, before_key, limit),
        )

    async def open(self) -> list[RescoreRecord]:
        """Those that are not over: running ones first, then the queued, oldest first."""
        return await self._all(
            f"{_SELECT} WHERE rescores.status IN (?, ?) ORDER BY rescores.status = ?, rescores.key",
            (RescoreStatus.RUNNING, RescoreStatus.QUEUED, RescoreStatus.QUEUED),
        )

    async def insert(self, record: RescoreRecord, *, request_id: str | None, request_sha256: str) -> None:
        """Adds a rescore; its `key` is chosen here. A taken request id is an sqlite3.IntegrityError."""
        await self._connection.execute(
            "INSERT INTO rescores (id, job_key, spec, request_id, request_sha256, server_ids, total_count, "
            "created_at, status, status_detail, error_code, error_message, next_step, next_row, done_count, "
            "tally, started_at, finished_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.id,
                record.job_key,
                record.spec.model_dump_json(),
                request_id,
                request_sha256,
                json.dumps(record.server_ids),
                record.total_count,
                to_micros(record.created_at),
                *_changing(record),
            ),
        )

    async def save(self, record: RescoreRecord) -> None:
        """Writes everything of a rescore that can change."""
        await self._connection.execute(
            "UPDATE rescores SET status = ?, status_detail = ?, error_code = ?, error_message = ?, "
            "next_step = ?, next_row = ?, done_count = ?, tally = ?, started_at = ?, finished_at = ? "
            "WHERE key = ?",
            (*_changing(record), record.key),
        )

    async def insert_part(self, key: int, part: RescorePart) -> None:
        """Adds a file of results."""
        await self._connection.execute(
            "INSERT INTO rescore_parts VALUES (?, ?, ?, ?)", (key, part.number, part.uri, part.row_count)
        )

    async def count_parts(self, key: int) -> int:
        """How many files of results there are; also the number of the next."""
        rows = list(
            await self._connection.execute_fetchall(
                "SELECT count(*) FROM rescore_parts WHERE rescore_key = ?", (key,)
            )
        )
        return int(rows[0][0])

    async def parts(self, key: int, *, first: int, limit: int) -> list[RescorePart]:
        """At most `limit` files of results from number `first` on, in order."""
        rows = await self._connection.execute_fetchall(
            "SELECT number, uri, row_count FROM rescore_parts WHERE rescore_key = ? AND number >= ? "
            "ORDER BY number LIMIT ?",
            (key, first, limit),
        )
        return [RescorePart(*row) for row in rows]

    async def _all(self, sql: str, parameters: Iterable[Any]) -> list[RescoreRecord]:
        rows = await self._connection.execute_fetchall(sql, tuple(parameters))
        return [_record(row) for row in rows]


def _changing(record: RescoreRecord) -> tuple[object, ...]:
    return (
        record.status,
        record.status_detail,
        record.error.code if record.error else None,
        record.error.message if record.error else None,
        record.next_step,
        record.next_row,
        record.done_count,
        record.tally_json,
        optional_to_micros(record.started_at),
        optional_to_micros(record.finished_at),
    )


def _record(row: Any) -> RescoreRecord:
    (
        key, rescore_id, job_key, job_id, spec, server_ids, status, total_count, tally, created_at, detail,
        error_code, error_message, next_step, next_row, done_count, started_at, finished_at,
    ) = row  # fmt: skip
    return RescoreRecord(
        key=key,
        id=rescore_id,
        job_key=job_key,
        job_id=job_id,
        spec=_accepted(json.loads(spec)),
        server_ids=tuple(json.loads(server_ids)),
        status=RescoreStatus(status),
        total_count=total_count,
        tally_json=tally,
        created_at=from_micros(created_at),
        status_detail=detail,
        error=JobError(error_code, error_message) if error_code is not None else None,
        next_step=next_step,
        next_row=next_row,
        done_count=done_count,
        started_at=optional_from_micros(started_at),
        finished_at=optional_from_micros(finished_at),
    )


def _accepted(spec: dict[str, Any]) -> RescoreSpec:
    # Checked when it was accepted: it stays readable where a rule has become stricter since.
    rewards = tuple(RewardBinding.model_construct(None, **binding) for binding in spec["rewards"])
    return RescoreSpec.model_construct(None, **{**spec, "rewards": rewards})
