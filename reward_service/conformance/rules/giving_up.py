"""Rules about work that is given up: cancelled, or out of time."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from reward_service.conformance._rule import Broken, Skipped, optional, required
from reward_service.conformance._run import Run
from reward_service.conformance._talk import Late

_GRACE_SECONDS: Final = 5.0
"""How long after a batch's timeout a client gives up on it."""

_SHORT_TIMEOUT_SECONDS: Final = 0.001
_LARGE_BATCH: Final = 512
_AT_ONCE_SECONDS: Final = 1.0


@required(
    "R28",
    "cancel",
    "Open work ends with CODE_CANCELLED, then `done`.",
    "after cancel, end what is open with CODE_CANCELLED, or go on; each result once, then done, either way",
)
async def cancel(run: Run) -> str | None:
    """A cancelled batch still gets its results and its `done`; one that is not known is ignored."""
    async with run.talk() as talk:
        await talk.open()
        await talk.cancel("no-such-batch")
        batch, other = run.work.many(64), run.work.many(2)
        await talk.send(batch)
        await talk.cancel(batch.batch_id)
        await talk.settled(batch)
        await talk.cancel(batch.batch_id)
        await talk.send(other)
        await talk.settled(other)
        await run.sound(talk)
        cancelled = [id for (id, _), o in talk.outcomes(other).items() if o.code == "CODE_CANCELLED"]
        if cancelled:
            raise talk.broken("a batch that was not cancelled was answered with CODE_CANCELLED")
    return None


@optional(
    "O06",
    "batch-timeout",
    "On expiry the server answers what is open with CODE_TIMEOUT.",
    "start a clock when a batch comes; when its timeout is over, answer what is open with CODE_TIMEOUT, "
    "then done",
)
async def batch_timeout(run: Run) -> str | None:
    """A batch whose time is over is done within the time for which clients wait, and no other times out."""
    if any(outcome.code == "CODE_TIMEOUT" for outcome in (await run.plain()).outcomes):
        raise Broken(
            "results were CODE_TIMEOUT long before their batch's timeout; it is in seconds and nanoseconds"
        )
    async with run.talk() as talk:
        window = (await talk.open()).max_in_flight_completions
        batch = run.work.many(min(window, _LARGE_BATCH), timeout=_SHORT_TIMEOUT_SECONDS)
        await talk.send(batch)
        try:
            await talk.settled(batch, seconds=_SHORT_TIMEOUT_SECONDS + _GRACE_SECONDS)
        except Late as late:
            raise Broken(
                f"the timeout of the batch was {_SHORT_TIMEOUT_SECONDS:g} s, and {late.found}", late.exchange
            ) from None
        codes = Counter(outcome.code for outcome in talk.outcomes(batch).values() if outcome.code)
        timed_out = codes.get("CODE_TIMEOUT", 0)
        rejected = talk.ledger.entries[batch.batch_id].rejected
        if rejected is not None:
            raise talk.broken("the batch was rejected; its open results end with CODE_TIMEOUT, then done")
        if not timed_out:
            return "the reward was quicker than a timeout of 1 ms"
    return f"{timed_out} results were CODE_TIMEOUT"


@optional(
    "O07",
    "cancellation",
    "`cancel` frames stop work early rather than only being acknowledged.",
    "stop the work of a batch when its cancel comes, or leave Capabilities.cancellation unset",
)
async def cancellation(run: Run) -> str | None:
    """Cancelling stops work, where that is announced."""
    if not run.info.capabilities.cancellation:
        raise Skipped("not announced")
    async with run.talk() as talk:
        window = (await talk.open()).max_in_flight_completions
        batch = run.work.many(min(window, _LARGE_BATCH))
        await talk.send(batch)
        await talk.cancel(batch.batch_id)
        began = time.monotonic()
        await talk.settled(batch)
        seconds = time.monotonic() - began
        codes = Counter(outcome.code for outcome in talk.outcomes(batch).values())
        if codes["CODE_CANCELLED"]:
            return f"{codes['CODE_CANCELLED']} of {sum(codes.values())} results were CODE_CANCELLED"
        if seconds < _AT_ONCE_SECONDS:
            return "the reward was quicker than the cancel"
        raise talk.broken(
            f"the batch went on for {seconds:.1f} s after its cancel, and was scored to the end"
        )


RULES: Final = (cancel,)
OPTIONAL_RULES: Final = (batch_timeout, cancellation)
