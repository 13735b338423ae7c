"""Brings a store's file to this version: forward only, after a copy."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Final

from gateway.store._times import now, to_micros
from plaudit.errors import FailedPreconditionError
from plaudit.service import private_file

SCRIPTS: Final[Sequence[str]] = tuple(
    resources.files("gateway.store").joinpath(name).read_text(encoding="utf-8")
    for name in (
        "schema.sql",
        "schema_2_reward_servers.sql",
        "schema_3_preflight_and_rescores.sql",
        "schema_4_dataset_methods.sql",
        "schema_5_job_requests.sql",
        "schema_6_init_checkpoints.sql",
        "schema_7_models.sql",
        "schema_8_access.sql",
        "schema_9_point_blocks.sql",
        "schema_10_alerts.sql",
        "schema_11_evaluations.sql",
        "schema_12_memory.sql",
        "schema_13_kept_requests.sql",
    )
)
"""Script n brings a store from version n - 1 to version n; the first makes it from nothing."""


def migrate(path: Path, scripts: Sequence[str] = SCRIPTS) -> None:
    """Makes the store at `path`, or brings it to the version that `scripts` end with.

    An existing store is copied to `{name}.v{version}.backup` before it is changed. A script runs whole or
    not at all. Raises FailedPreconditionError (reason SCHEMA_TOO_NEW) where a newer Plaudit has written the
    store.
    """
    private_file(path)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10.0)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT"
        )
        version: int = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()[0]
        if version > len(scripts):
            raise FailedPreconditionError(
                f"{path} has schema version {version}, and this version of Plaudit knows {len(scripts)}; run "
                "the Plaudit that wrote it, or a newer one, or choose another data directory",
                reason="SCHEMA_TOO_NEW",
            )
        if 0 < version < len(scripts):
            _copy(connection, path.with_name(f"{path.name}.v{version}.backup"))
        for number, script in enumerate(scripts[version:], start=version + 1):
            _apply(connection, number, script)


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    private_file(partial)
    with closing(sqlite3.connect(partial)) as copy:
        connection.backup(copy)
    partial.replace(target)


def _apply(connection: sqlite3.Connection, number: int, script: str) -> None:
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}")
        connection.execute("INSERT INTO migrations VALUES (?, ?)", (number, to_micros(now())))
        if number == 1:
            connection.execute("INSERT INTO identity VALUES (?)", (secrets.token_hex(4),))
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
