"""Reward servers in the store: how they are spoken to, and what they said of themselves."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from gateway.store import Store
from gateway.store._migrations import SCRIPTS, migrate
from gateway.store.reward_servers import RegisteredRewardServer, SeenReplica
from plaudit.types.access import OPEN_TO_ALL, ServerAccess

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def test_a_server_of_an_older_store_is_open_to_all(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite3"
    migrate(path, SCRIPTS[:1])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO reward_servers VALUES ('rs_a', 'old', '[\"127.0.0.1:1\"]', 0, 5)")
    async with Store.open(path) as store, store.snapshot() as reading:
        (server,) = await reading.reward_servers.list()
        assert (server.name, server.addresses, server.access) == ("old", ("127.0.0.1:1",), OPEN_TO_ALL)


async def test_access_and_what_replicas_said_are_kept_until_the_server_is_forgotten(tmp_path: Path) -> None:
    access = ServerAccess.model_validate({"tls": {"ca": "judge"}, "credential": "judge"})
    server = RegisteredRewardServer("rs_a", "judge", ("127.0.0.1:1",), False, NOON, access)
    first, second = SeenReplica("judge 1", {"a": "aa"}), SeenReplica("judge 2", {})
    async with Store.open(tmp_path / "s.sqlite3") as store:
        async with store.transaction() as session:
            await session.reward_servers.insert(server)
            await session.reward_servers.note_replica("rs_a", "127.0.0.1:1", first)
            await session.reward_servers.note_replica("rs_a", "127.0.0.1:2", first)
            await session.reward_servers.note_replica("rs_a", "127.0.0.1:1", second)
        async with store.snapshot() as reading:
            assert await reading.reward_servers.find("judge") == server
            seen = await reading.reward_servers.seen_replicas("rs_a")
            assert seen == {"127.0.0.1:1": second, "127.0.0.1:2": first}
        async with store.transaction() as session:
            await session.reward_servers.delete("rs_a")
            assert await session.reward_servers.seen_replicas("rs_a") == {}
