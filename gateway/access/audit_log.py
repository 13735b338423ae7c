"""Writes the audit log, many entries in one transaction where many calls end together."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.access.callers import Caller
from gateway.pages import Page, page_size
from gateway.store import Store
from gateway.store.audit import AuditEntry
from plaudit.errors import InvalidArgumentError
from plaudit.types.validation import shown

log = structlog.get_logger(__name__)

KEPT: Final = 100_000
_DEFAULT_PAGE: Final = 50
_LONGEST_TEXT: Final = 300
_OK: Final = "ok"


class AuditLog:
    """Keeps an entry for every call that changed something or was not allowed to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[AuditEntry, asyncio.Future[None]]] = []
        self._news = asyncio.Event()
        self._closed = False

    async def write(self, caller: Caller, *, peer: str, call: str, subject: str, outcome: str = _OK) -> None:
        """Keeps an entry; it is on disk when this returns, or else in the service's log alone."""
        entry = AuditEntry(
            datetime.now(UTC),
            caller.token_id,
            caller.name,
            caller.role,
            peer,
            call[:_LONGEST_TEXT],
            subject[:_LONGEST_TEXT],
            outcome,
        )
        log.info(
            "audit",
            caller=caller.name,
            role=caller.role.value,
            peer=peer,
            call=entry.call,
            subject=entry.subject,
            outcome=outcome,
        )
        if self._closed:
            return
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, written))
        self._news.set()
        await written

    async def run(self) -> None:
        """Writes what is waiting until it is cancelled."""
        while True:
            await self._news.wait()
            await self._flush()

    async def close(self) -> None:
        """Writes what still waits, once `run` has ended; later entries stand in the service's log alone."""
        self._closed = True
        await self._flush()

    async def page(self, *, limit: int = 0, page_token: str = "") -> Page[AuditEntry]:
        """Entries, newest first. `limit` 0 is 50, above 500 is 500."""
        size = page_size(limit, _DEFAULT_PAGE)
        if page_token and not (page_token.isascii() and page_token.isdecimal() and len(page_token) < 19):
            raise InvalidArgumentError.of(
                "page_token", f"{shown(page_token)} is none that was given out; list again from the start"
            )
        async with self._store.snapshot() as session:
            found = await session.audit.page(before=int(page_token) if page_token else None, limit=size + 1)
        entries = found[:size]
        return Page(entries, str(entries[-1].number) if len(found) > size else "")

    async def _flush(self) -> None:
        self._news.clear()
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            async with self._store.transaction() as session:
                await session.audit.append([entry for entry, _ in waiting], keep=KEPT)
        except sqlite3.Error:
            # What was done is done, and the log above has it; the caller must not take it for undone.
            log.exception("the audit log could not be written", entries=len(waiting))
        finally:
            for _, written in waiting:
                with suppress(asyncio.InvalidStateError):  # whoever waited has gone
                    written.set_result(None)
