"""What services keep is for their user only, whatever umask they were started with and whatever was there."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.datasets.service import DatasetService
from gateway.store import Store
from gateway.store._migrations import SCRIPTS, migrate
from plaudit.service import DataDirectory, private_file
from plaudit.service._supervisor import _open_log
from plaudit.types.statuses import RunState
from reward_service.judge._budget import Ledger as Budgets
from reward_service.judge._cache import VerdictCache
from trainer_service.files import write_whole
from trainer_service.journal import JournalWriter, RunStateChanged
from trainer_service.ledger import Ledger


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask-000", "umask-022", "umask-077"])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    return [
        f"{path.relative_to(folder)} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in sorted(folder.rglob("*"))
        if path.stat().st_mode & 0o077
    ]


@pytest.mark.usefixtures("any_umask")
async def test_nothing_below_a_new_data_directory_is_open_to_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DataDirectory(data / "gateway") as state:
        async with Store.open(state.path / "gateway.sqlite3") as store:
            datasets = DatasetService(store, data / "artifacts", max_upload_bytes=1_000_000)
            await datasets.start()
            async with datasets.upload() as upload:
                await upload.write(b'{"prompt": "1 + 1?"}\n')
                assert (data / "artifacts").stat().st_mode & 0o077 == 0
                assert open_to_others(data / "artifacts" / "datasets" / "incoming") == []
                kept = Ledger(state.path / "ledger.sqlite3")
                folder = state.path / "runs"
                folder.mkdir(mode=0o700)
                with JournalWriter(folder) as journal:
                    journal.append(RunStateChanged(RunState.STARTING))
                    cache = VerdictCache(state.path / "verdicts.sqlite3", 10)
                    await cache.get("nothing")
                    budgets = Budgets(state.path / "budgets.sqlite3")
                    write_whole(state.path / "result.json", "{}")
                    _open_log(data / "logs" / "gateway.log", "gateway").info("started")
                    names = {path.name for path in data.rglob("*")}
                    assert {"gateway.sqlite3-wal", "gateway.sqlite3-shm", "budgets.sqlite3-wal"} <= names
                    assert open_to_others(data / "gateway") == open_to_others(data / "logs") == []
                    assert data.stat().st_mode & 0o077 == 0
                await cache.close()
                await budgets.close()
                kept.close()


@pytest.mark.usefixtures("any_umask")
def test_what_was_open_to_others_is_closed(tmp_path: Path) -> None:
    state = tmp_path / "gateway"
    state.mkdir(mode=0o755)
    path = state / "gateway.sqlite3"
    migrate(path, SCRIPTS[:3])
    for each in (state, path):
        each.chmod(0o755)
    with DataDirectory(state):
        migrate(path)
        assert {"gateway.sqlite3.v3.backup"} < {each.name for each in state.iterdir()}
        assert open_to_others(state) == []
        assert state.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT max(version) FROM migrations").fetchone() == (len(SCRIPTS),)


def test_a_folder_for_several_users_stays_as_its_operator_made_it(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2775)

    async def start() -> None:
        async with Store.open(tmp_path / "gateway.sqlite3") as store:
            await DatasetService(store, shared, max_upload_bytes=1_000_000).start()

    asyncio.run(start())
    assert stat.S_IMODE(shared.stat().st_mode) == 0o2775


def test_a_database_without_a_file_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    private_file(Path(":memory:"))
    assert list(tmp_path.iterdir()) == []
