"""Models in the store."""

from __future__ import annotations

import builtins
import json
from dataclasses import asdict
from typing import Any, Final

import aiosqlite

from gateway.models.model import Model, ModelFile, ModelKind, ModelStatus
from gateway.store._times import from_micros, to_micros

_SELECT: Final = (
    "SELECT models.id, jobs.spec ->> '$.output_name', jobs.id, jobs.spec ->> '$.base_model', models.attempt, "
    "models.step, is_final, kind, dtype, models.status, models.status_detail, checkpoint_uri, uri, files, "
    "models.created_at FROM models JOIN jobs ON jobs.key = models.job_key"
)


class Models:
    """Reads and writes models on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, id_or_name: str) -> Model | None:
        """The model with this id; else of the newest job with this output name the final one, or where there
        is none the newest; else None.
        """
        found = await self._all("WHERE models.id = ?", (id_or_name,)) or await self._all(
            "WHERE jobs.spec ->> '$.output_name' = ? "
            "ORDER BY models.job_key DESC, is_final DESC, models.key DESC LIMIT 1",
            (id_or_name,),
        )
        return found[0] if found else None

    async def final_of(self, job_key: int) -> Model | None:
        """The model of a job's last checkpoint, or None."""
        found = await self._all("WHERE models.job_key = ? AND is_final", (job_key,))
        return found[0] if found else None

    async def same_export(self, model: Model) -> Model | None:
        """An export of the same checkpoint in the same form that is there or under way, or None."""
        found = await self._all(
            "WHERE checkpoint_uri = ? AND kind = ? AND dtype = ? AND models.status <> ? "
            "ORDER BY models.key LIMIT 1",
            (model.checkpoint_uri, model.kind, model.dtype, ModelStatus.UNAVAILABLE),
        )
        return found[0] if found else None

    async def list(
        self, *, limit: int, after: str | None = None, job_id: str | None = None
    ) -> builtins.list[Model]:
        """At most `limit` models, of a job or of all, newest first, made before the one with the id `after`,
        which must be there: else there are none.
        """
        return await self._all(
            "WHERE (? IS NULL OR models.key < (SELECT key FROM models WHERE id = ?)) "
            "AND (? IS NULL OR jobs.id = ?) ORDER BY models.key DESC LIMIT ?",
            (after, after, job_id, job_id, limit),
        )

    async def exporting(self) -> builtins.list[Model]:
        """The models whose export is under way, oldest first."""
        return await self._all("WHERE models.status = ? ORDER BY models.key", (ModelStatus.EXPORTING,))

    async def insert(self, job_key: int, model: Model) -> None:
        """Adds a model; a final one takes the place, but not the id, of the one that its job has."""
        await self._connection.execute(
            "INSERT INTO models (id, job_key, attempt, step, is_final, kind, dtype, status, status_detail, "
            "checkpoint_uri, uri, files, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (job_key) WHERE is_final DO UPDATE SET attempt = excluded.attempt, "
            "step = excluded.step, kind = excluded.kind, dtype = excluded.dtype, status = excluded.status, "
            "status_detail = excluded.status_detail, checkpoint_uri = excluded.checkpoint_uri, "
            "uri = excluded.uri, files = excluded.files, created_at = excluded.created_at",
            (
                model.id,
                job_key,
                model.attempt,
                model.step,
                int(model.is_final),
                model.kind,
                model.dtype,
                model.status,
                model.status_detail,
                model.checkpoint_uri,
                model.uri,
                _files_json(model),
                to_micros(model.created_at),
            ),
        )

    async def save(self, model: Model) -> None:
        """Writes what of a model can change; one that is not there any more stays away."""
        await self._connection.execute(
            "UPDATE models SET kind = ?, status = ?, status_detail = ?, files = ? WHERE id = ?",
            (model.kind, model.status, model.status_detail, _files_json(model), model.id),
        )

    async def delete(self, model_id: str) -> None:
        """Removes the model; one that is not there is removed already."""
        await self._connection.execute("DELETE FROM models WHERE id = ?", (model_id,))

    async def _all(self, where: str, parameters: tuple[Any, ...]) -> builtins.list[Model]:
        rows = await self._connection.execute_fetchall(f"{_SELECT} {where}", parameters)
        return [
            Model(
                id=row[0],
                name=row[1],
                job_id=row[2],
                base_model=row[3],
                attempt=row[4],
                step=row[5],
                is_final=bool(row[6]),
                kind=ModelKind(row[7]),
                dtype=row[8],
                status=ModelStatus(row[9]),
                status_detail=row[10],
                checkpoint_uri=row[11],
                uri=row[12],
                files=tuple(ModelFile(**file) for file in json.loads(row[13])),
                created_at=from_micros(row[14]),
            )
            for row in rows
        ]


def _files_json(model: Model) -> str:
    return json.dumps([asdict(file) for file in model.files])
