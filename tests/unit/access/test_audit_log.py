"""The audit log over a real store."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.access.audit_log import AuditLog
from gateway.access.callers import Caller
from gateway.store import Store
from plaudit.types.roles import Role

CALLER = Caller("tok_1", "alice", Role.OPERATOR)


async def test_what_comes_together_is_written_together_and_all_of_it(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "gateway.sqlite3") as store:
        audit = AuditLog(store)
        running = asyncio.create_task(audit.run())
        calls = [f"POST /v1/{number}" for number in range(300)]
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(audit.write(CALLER, peer="127.0.0.1", call=call, subject="") for call in calls)
            )
        found = []
        token = ""
        while True:
            page = await audit.page(limit=70, page_token=token)
            found += [entry.call for entry in page.items]
            token = page.next_page_token
            if not token:
                break
        assert found == calls[::-1]
        running.cancel()
        await asyncio.wait([running])
        await audit.close()
        # After its end the service's log alone has what comes; nobody waits for ever.
        await asyncio.wait_for(audit.write(CALLER, peer="", call="late", subject=""), 10)


async def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "gateway.sqlite3") as store:
        audit = AuditLog(store)
        running = asyncio.create_task(audit.run())
        for number in range(5):
            await audit.write(CALLER, peer="", call="x" * 1000, subject=str(number))
        page = await audit.page()
        async with store.transaction() as session:
            await session.audit.append(page.items[:1], keep=3)
        kept = await audit.page()
        assert [entry.subject for entry in kept.items] == ["4", "4", "3"]
        assert len(kept.items[0].call) == 300
        running.cancel()
        await asyncio.wait([running])
