"""How fast an endpoint is asked: calls at once, calls and tokens a minute, and pauses that it asks for."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reward_service.judge.settings import JudgeProfile

WINDOW_SECONDS = 60.0


class Entry:
    """What a call takes of a window, estimated first and corrected when it is over."""

    __slots__ = ("amount", "at")

    def __init__(self, at: float, amount: float) -> None:
        self.at = at
        self.amount = amount


class Window:
    """At most `limit` within any `seconds`.

    Not a leaky bucket: one that holds a minute's worth lets twice the limit through in its first minute, and
    takes nothing back where an estimate was too high.
    """

    def __init__(self, limit: float, seconds: float = WINDOW_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._entries: deque[Entry] = deque()
        self._sum = 0.0

    def delay(self, amount: float, now: float) -> float:
        """Seconds until there is room for `amount`. What is above the limit goes when it is alone."""
        while self._entries and self._entries[0].at + self._seconds <= now:
            self._sum -= self._entries.popleft().amount
        if not self._entries:
            self._sum = 0.0  # what rounding left
        excess = self._sum + min(amount, self._limit) - self._limit
        for entry in self._entries:
            if excess <= 0:
                return 0.0
            excess -= entry.amount
            if excess <= 0:
                return entry.at + self._seconds - now
        return 0.0

    def add(self, amount: float, now: float) -> Entry:
        """Takes `amount`."""
        entry = Entry(now, amount)
        self._entries.append(entry)
        self._sum += amount
        return entry

    def correct(self, entry: Entry, amount: float) -> None:
        """Sets what a call really took."""
        if self._entries and self._entries[0].at <= entry.at:
            self._sum += amount - entry.amount
        entry.amount = amount


class Pace:
    """Lets calls to one endpoint go, in the order in which they ask."""

    def __init__(self, profile: JudgeProfile) -> None:
        self._slots = asyncio.Semaphore(profile.concurrency)
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._paused_until = 0.0
        self._requests = Window(profile.requests_per_minute) if profile.requests_per_minute else None
        self._tokens = Window(profile.tokens_per_minute) if profile.tokens_per_minute else None

    def pause(self, seconds: float) -> None:
        """Lets no call go for so long."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    @property
    def pause_left(self) -> float:
        """Seconds for which no call goes."""
        return max(0.0, self._paused_until - time.monotonic())

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """One of the calls that may be under way."""
        async with self._slots:
            yield

    async def turn(self, tokens: float) -> Entry:
        """Waits until a call of about `tokens` may go, and counts it."""
        async with self._turn:
            while (delay := self._delay(tokens)) > 0:
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), delay)
                except TimeoutError:
                    continue
            now = time.monotonic()
            if self._requests is not None:
                self._requests.add(1, now)
            return Entry(now, tokens) if self._tokens is None else self._tokens.add(tokens, now)

    def settle(self, entry: Entry, tokens: float) -> None:
        """Counts what a call really took."""
        if self._tokens is not None:
            self._tokens.correct(entry, tokens)
            self._changed.set()

    def _delay(self, tokens: float) -> float:
        now = time.monotonic()
        delays = [self._paused_until - now]
        if self._requests is not None:
            delays.append(self._requests.delay(1, now))
        if self._tokens is not None:
            delays.append(self._tokens.delay(tokens, now))
        return max(delays)
