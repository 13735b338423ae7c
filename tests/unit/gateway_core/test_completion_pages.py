"""Pages of completions out of Parquet files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored_jobs import add_job, add_run

from gateway.jobs.completions import RewardOutcome
from gateway.jobs.service import JobService
from gateway.store import Store
from gateway.store.completions import CompletionFile
from gateway.store.jobs import JobRecord
from plaudit.errors import InvalidArgumentError, UnavailableError

OUTCOMES = [
    {
        "name": "a",
        "status": "scored",
        "value": 0.5,
        "explanation": "half",
        "scored_at": "2026-05-01T12:00:00Z",
    },
    {"name": "b", "status": "timeout", "value": None, "explanation": "60 s", "scored_at": None},
]
TYPES = {
    "step": pa.int64(),
    "attempt": pa.int32(),
    "group_id": pa.string(),
    "completion_id": pa.string(),
    "prompt_text": pa.string(),
    "completion_text": pa.string(),
    "token_count": pa.int32(),
    "truncated": pa.bool_(),
    "reward": pa.float64(),
    "advantage": pa.float64(),
    "outcomes": pa.string(),
}


def write_file(root: Path, attempt: int, step: int, count: int, row_group_size: int) -> CompletionFile:
    uri = f"jobs/j/attempt-{attempt}/completions/step-{step:06d}.parquet"
    rows = [
        {
            "step": step,
            "attempt": attempt,
            "group_id": f"{step}-g{index // 4}",
            "completion_id": f"{step}-{index}",
            "prompt_text": "What is 1 + 1?",
            "completion_text": f"text {index}",
            "token_count": index,
            "truncated": index % 2 == 0,
            "reward": None if index == 0 else 0.5,
            "advantage": None if index == 0 else -0.25,
            "outcomes": json.dumps(OUTCOMES),
        }
        for index in range(count)
    ]
    (root / uri).parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(TYPES.items())))
    pq.write_table(table, root / uri, row_group_size=row_group_size)
    return CompletionFile(attempt, step, uri, count, 1, "ab")


async def a_job(store: Store, root: Path) -> JobRecord:
    """Attempt 1 wrote steps 1, 2 and 3; attempt 2 started from step 2 and wrote step 3 again."""
    record = await add_job(store)
    await add_run(store, record, 1)
    await add_run(store, record, 2, from_step=2)
    async with store.transaction() as session:
        for attempt, step, count in ((1, 1, 5), (1, 2, 7), (1, 3, 7), (2, 3, 600)):
            file = write_file(root, attempt, step, count, row_group_size=256 if count > 9 else 3)
            await session.completion_files.insert(record.key, file)
    return record


@pytest.fixture
def jobs(store: Store, tmp_path: Path) -> JobService:
    return JobService(store, None, None, tmp_path, on_change=lambda: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [1, 4, 7, 300, 500])
async def test_every_completion_on_the_line_comes_once_newest_step_first(
    jobs: JobService, store: Store, tmp_path: Path, limit: int
) -> None:
    record = await a_job(store, tmp_path)
    found, token = [], ""
    while True:
        page = await jobs.completions(record.job.id, limit=limit, page_token=token)
        assert 1 <= len(page.items) <= limit
        found.extend(page.items)
        token = page.next_page_token
        if not token:
            break
    assert [(c.step, c.attempt, c.completion_id) for c in found] == [
        *((3, 2, f"3-{i}") for i in range(600)),
        *((2, 1, f"2-{i}") for i in range(7)),
        *((1, 1, f"1-{i}") for i in range(5)),
    ]
    assert all(c.completion_text == f"text {c.token_count}" for c in found)


async def test_one_step_and_all_of_a_row(jobs: JobService, store: Store, tmp_path: Path) -> None:
    record = await a_job(store, tmp_path)
    page = await jobs.completions(record.job.id, step=2)
    assert (len(page.items), page.next_page_token) == (7, "")
    unscored, scored = page.items[0], page.items[1]
    assert (unscored.reward, unscored.advantage, unscored.truncated) == (None, None, True)
    assert (scored.reward, scored.advantage, scored.truncated, scored.group_id) == (0.5, -0.25, False, "2-g0")
    assert scored.outcomes == (
        RewardOutcome("a", "scored", 0.5, "half", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        RewardOutcome("b", "timeout", None, "60 s", None),
    )
    assert (await jobs.completions(record.job.id, step=9)).items == []


async def test_a_file_that_cannot_be_read_is_named(jobs: JobService, store: Store, tmp_path: Path) -> None:
    record = await a_job(store, tmp_path)
    path = tmp_path / "jobs/j/attempt-1/completions/step-000001.parquet"
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(UnavailableError, match="attempt-1/completions/step-000001"):
        await jobs.completions(record.job.id, step=1)
    path.unlink()
    with pytest.raises(UnavailableError, match="restore the file"):
        await jobs.completions(record.job.id, step=1)
    assert len((await jobs.completions(record.job.id, step=2)).items) == 7
    outside = CompletionFile(2, 4, "../../etc/passwd", 1, 1, "ab")
    async with store.transaction() as session:
        await session.completion_files.insert(record.key, outside)
    with pytest.raises(UnavailableError, match="outside the artifact root"):
        await jobs.completions(record.job.id, step=4)


@pytest.mark.parametrize("token", ["x", "1.1", "1.1.-1", "1.1.1.1", "01.1.1", "\uff11.1.1"])
async def test_junk_is_no_token(jobs: JobService, store: Store, tmp_path: Path, token: str) -> None:
    record = await a_job(store, tmp_path)
    with pytest.raises(InvalidArgumentError) as refused:
        await jobs.completions(record.job.id, page_token=token)
    assert [v.field for v in refused.value.violations] == ["page_token"]
