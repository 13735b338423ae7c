"""What each job has spent on judges, on disk: counted before a call is made, and never forgotten.

The same file remembers which endpoints have ever answered.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from plaudit.errors import FailedPreconditionError
from plaudit.service import private_file

log = structlog.get_logger(__name__)

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS spending (
    job_id TEXT PRIMARY KEY,
    tokens REAL NOT NULL,
    cost REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS seen_endpoints (
    identity TEXT PRIMARY KEY
) STRICT;
"""
_AHEAD: Final = 0.01
"""Share of a budget that is written as spent before it is, to write less often."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens, read and written, and what they cost in the currency of the profile's prices."""

    tokens: float = 0.0
    cost: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.cost + other.cost)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.cost - other.cost)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a job may spend on judges; None is no limit."""

    tokens: float | None = None
    cost: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.tokens is not None or self.cost is not None

    def excess(self, spent: Amount) -> str:
        """Which limit `spent` is beyond, in words; "" where none."""
        if self.tokens is not None and spent.tokens > self.tokens:
            return f"budget_tokens of {self.tokens:g}"
        if self.cost is not None and spent.cost > self.cost:
            return f"budget_cost of {self.cost:g}"
        return ""

    def ahead(self) -> Amount:
        """What is written as spent ahead of the calls."""
        return Amount(_AHEAD * (self.tokens or 0.0), _AHEAD * (self.cost or 0.0))


class BudgetSpentError(Exception):
    """A call would go beyond a budget. The message names it."""


class _Account:
    """One job's. `on_disk` is never less than what is spent and reserved, nor `ahead` of it for long."""

    def __init__(self, on_disk: Amount) -> None:
        self.spent = on_disk
        self.reserved = Amount()
        self.open_calls = 0
        self.on_disk = on_disk
        self.ahead = Amount()
        self.lowering: asyncio.Task[None] | None = None
        self.writing = asyncio.Lock()
        self.settled = asyncio.Event()

    @property
    def needed(self) -> Amount:
        """What must be on disk."""
        return self.spent + self.reserved

    @property
    def is_too_high(self) -> bool:
        """Whether a killed process would lose more than it should."""
        excess, least = self.on_disk - self.needed, self.ahead + self.ahead
        return excess.tokens > least.tokens or excess.cost > least.cost


class Ledger:
    """Spending by job, in a file that one process owns."""

    def __init__(self, path: Path) -> None:
        """Opens the file. Raises FailedPreconditionError where it cannot be read: it is not begun anew."""
        self._path = path
        self._accounts: dict[str, _Account] = {}
        self._opening = asyncio.Lock()
        # SQLite blocks, and one thread is the one writer.
        self._thread = ThreadPoolExecutor(1, "judge-budgets")
        try:
            private_file(path)
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(_SCHEMA)
            self._connection.execute("SELECT job_id, tokens, cost FROM spending").fetchone()
        except sqlite3.Error as error:
            raise FailedPreconditionError(
                f"the budgets of judges in {path} cannot be read ({error}); what jobs have spent is not "
                "known. Put back a copy, or move the file away to count from nothing",
                reason="BUDGETS_UNREADABLE",
            ) from None

    async def reserve(self, job_id: str, budget: Budget, amount: Amount) -> None:
        """Counts `amount` as about to be spent, on disk too, and then returns.

        Waits where it fits only once calls under way have taken less than they might. Raises
        BudgetSpentError where it does not fit.
        """
        account = await self._account(job_id)
        while True:
            excess = budget.excess(account.spent + amount)
            if excess:
                raise BudgetSpentError(
                    f"the job has spent {account.spent.tokens:,.0f} tokens and {account.spent.cost:.4g} in "
                    f"money on judges, and the next call may go beyond the {excess}. The budget of a job "
                    "stays as it is: go on with a new job from its newest checkpoint, with a higher budget, "
                    "which is counted anew (plaudit job clone JOB --from latest "
                    "--set 'rewards[N].config.budget_tokens=...', N being the reward's place, from 0)"
                )
            if not budget.excess(account.spent + account.reserved + amount):
                break
            account.settled.clear()
            await account.settled.wait()
        account.reserved += amount
        account.open_calls += 1
        account.ahead = budget.ahead()
        try:
            await self._raise(job_id, account)
        except BaseException:
            self.settle(job_id, amount, Amount())
            raise

    def settle(self, job_id: str, reserved: Amount, spent: Amount) -> None:
        """Counts what was spent, in place of what was reserved for it."""
        account = self._accounts[job_id]
        account.open_calls -= 1
        account.reserved = account.reserved - reserved if account.open_calls else Amount()
        account.spent += spent
        account.settled.set()
        if account.is_too_high and account.lowering is None:
            account.lowering = asyncio.create_task(self._lower(job_id, account))

    async def spent(self, job_id: str) -> Amount:
        """What a job has spent."""
        return (await self._account(job_id)).spent

    async def remember_endpoint(self, identity: str) -> None:
        """Notes that an endpoint has answered."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._remember, identity)

    async def has_seen_endpoint(self, identity: str) -> bool:
        """Whether it has ever answered."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._has_seen, identity)

    async def close(self) -> None:
        """Writes what was really spent."""
        loop = asyncio.get_running_loop()
        for job_id, account in self._accounts.items():
            if account.lowering is not None:
                await account.lowering
            if account.needed != account.on_disk:
                await loop.run_in_executor(self._thread, self._write, job_id, account.needed)
        await loop.run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    async def _account(self, job_id: str) -> _Account:
        account = self._accounts.get(job_id)
        if account is None:
            async with self._opening:
                account = self._accounts.get(job_id)
                if account is None:
                    loop = asyncio.get_running_loop()
                    on_disk = await loop.run_in_executor(self._thread, self._read, job_id)
                    account = self._accounts[job_id] = _Account(on_disk)
        return account

    async def _raise(self, job_id: str, account: _Account) -> None:
        async with account.writing:
            needed = account.needed
            if needed.tokens > account.on_disk.tokens or needed.cost > account.on_disk.cost:
                await self._set(job_id, account)

    async def _lower(self, job_id: str, account: _Account) -> None:
        try:
            while account.is_too_high:
                async with account.writing:
                    await self._set(job_id, account)
        except sqlite3.Error as error:
            log.warning("the budgets of judges could not be written", path=str(self._path), error=str(error))
        finally:
            account.lowering = None

    async def _set(self, job_id: str, account: _Account) -> None:
        target = account.needed + account.ahead
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, job_id, target)
        account.on_disk = target

    def _read(self, job_id: str) -> Amount:
        row = self._connection.execute(
            "SELECT tokens, cost FROM spending WHERE job_id = ?", (job_id,)
        ).fetchone()
        return Amount() if row is None else Amount(*row)

    def _write(self, job_id: str, amount: Amount) -> None:
        self._connection.execute(
            "INSERT INTO spending VALUES (?, ?, ?) "
            "ON CONFLICT (job_id) DO UPDATE SET tokens = excluded.tokens, cost = excluded.cost",
            (job_id, amount.tokens, amount.cost),
        )

    def _remember(self, identity: str) -> None:
        self._connection.execute("INSERT OR IGNORE INTO seen_endpoints VALUES (?)", (identity,))

    def _has_seen(self, identity: str) -> bool:
        query = "SELECT 1 FROM seen_endpoints WHERE identity = ?"
        return self._connection.execute(query, (identity,)).fetchone() is not None
