"""Jobs with a million points, written through the gateway's own store, and the plain way to thin them."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.server import STORE_FILE, open_gateway
from gateway.settings import GatewaySettings
from gateway.store import Store
from gateway.store.ids import new_id
from gateway.store.runs import RunPhase

_SPEC: Final = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "adder",
    "rewards": [{"server": "builtin", "reward": "exact_answer"}],
}
_STEPS_PER_TRANSACTION: Final = 20_000


@dataclass(frozen=True, slots=True)
class History:
    """A job with `steps` steps of each of `keys`."""

    job_id: str
    keys: tuple[str, ...]
    steps: int


async def write_history(settings: GatewaySettings, keys: tuple[str, ...], steps: int) -> History:
    """Makes a job that has reported `steps` steps; no gateway may run over these settings meanwhile."""
    async with open_gateway(settings) as gateway:
        job = await gateway.jobs.create(_SPEC)
    rng = random.Random(7)
    async with Store.open(settings.state_dir / STORE_FILE) as store:
        async with store.transaction() as session:
            record = await session.jobs.find(job.id)
            assert record is not None
            run_id = new_id("run")
            await session.runs.insert(
                run_id,
                job_key=record.key,
                attempt=1,
                trainer_id="trainer_1",
                from_step=0,
                checkpoint_uri="",
                spec_json="{}",
                created_at=datetime.now(UTC),
            )
            await session.runs.set_phase(run_id, RunPhase.FORGOTTEN)
        for first in range(1, steps + 1, _STEPS_PER_TRANSACTION):
            through = min(first + _STEPS_PER_TRANSACTION - 1, steps)
            async with store.transaction() as session:
                await session.points.insert_steps(
                    record.key,
                    1,
                    [(step, {key: rng.random() for key in keys}) for step in range(first, through + 1)],
                )
    return History(job.id, keys, steps)


def thin_by_hand(store: Path, history: History, max_points: int) -> int:
    """Reads every point by a plain SELECT, keeps the extremes of each bucket, and says how many that are."""
    kept = 0
    buckets = max_points // 2
    with closing(sqlite3.connect(store)) as connection:
        for key in history.keys:
            rows = connection.execute(
                "SELECT step, value FROM points WHERE job_key = (SELECT key FROM jobs WHERE id = ?) "
                "AND name_id = (SELECT id FROM metric_names WHERE name = ?) ORDER BY step",
                (history.job_id, key),
            ).fetchall()
            first, width = rows[0][0], rows[-1][0] - rows[0][0] + 1
            low: dict[int, tuple[int, float]] = {}
            high: dict[int, tuple[int, float]] = {}
            for row in rows:
                bucket = (row[0] - first) * buckets // width
                if bucket not in low or row[1] < low[bucket][1]:
                    low[bucket] = row
                if bucket not in high or row[1] > high[bucket][1]:
                    high[bucket] = row
            kept += len({*low.values(), *high.values()})
    return kept
