"""Rules about sessions: several at once, and the same one again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import grpc

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._rule import Broken, Skipped, optional, required
from reward_service.conformance._run import Run
from reward_service.conformance._talk import Late, Talk
from reward_service.conformance._work import TEXTS

_SESSIONS: Final = 4
_ROUNDS: Final = 3


@required(
    "R29",
    "sessions-apart",
    "Unique within the session; results carry it.",
    "keep everything of a session, its keys and its batches, with its stream, and nothing of it in globals",
)
async def sessions_apart(run: Run) -> str | None:
    """Sessions at the same time, with the same completion ids and other keys, are not mixed."""
    most = min(4, run.work.most)
    ids = [f"1-{index}" for index in range(most)]

    async def converse(number: int) -> None:
        async with run.talk(run.selection(f"key-{number}"), wire=run.connect()) as talk:
            await talk.open()
            for _ in range(_ROUNDS):
                await together.wait()
                texts = [f"{TEXTS[i % len(TEXTS)]} ({number})" for i in range(most)]
                batch = run.work.batch(run.work.group(texts, ids=ids))
                await talk.send(batch)
                await talk.settled(batch)
            await run.sound(talk)

    together = _Meeting(_SESSIONS)
    tasks = [asyncio.create_task(converse(number)) for number in range(_SESSIONS)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return f"{_SESSIONS} sessions"


class _Meeting:
    """Lets so many conversations go on together."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._here = 0
        self._gate = asyncio.Event()

    async def wait(self) -> None:
        """Waits for the others."""
        self._here += 1
        gate = self._gate
        if self._here == self._count:
            self._here, self._gate = 0, asyncio.Event()
            gate.set()
        await gate.wait()


@required(
    "R30",
    "resume",
    "The client sends the other pending batches again, under the ids that they had.",
    "name in retained_batch_ids only batches that you hold, replay all of their results and their done, and "
    "take the others when they are sent again; where nothing is kept, name none",
)
async def resume(run: Run) -> str | None:
    """A session that broke is opened again, and what was pending is answered in full."""
    async with run.talk() as broken_off:
        await broken_off.open()
        finished, open_batch = run.work.many(3), run.work.many(32)
        await broken_off.send(finished)
        await broken_off.settled(finished)
        await broken_off.send(open_batch)
        broken_off.break_off()
        async with run.talk() as talk:
            talk.session_id = broken_off.session_id
            never_sent = run.work.many(1)
            pending = [finished, open_batch, never_sent]
            retained = await _reopen(talk, pending)
            if never_sent.batch_id in retained:
                raise talk.broken("retained_batch_ids names a batch that was never sent")
            for batch in pending:
                if batch.batch_id not in retained:
                    await talk.send(batch)
            await talk.settled(*pending)
            await run.sound(talk)
            talk.break_off()
            async with run.talk() as forgetful:
                forgetful.session_id = broken_off.session_id
                await forgetful.open()
                last = run.work.many(2)
                await forgetful.send(last)
                await forgetful.settled(last)
                await run.sound(forgetful)
    return f"{len(retained)} of 3 pending batches were retained"


async def _reopen(talk: Talk, pending: Sequence[pb.Batch]) -> set[str]:
    """Opens a session again; what the server says it holds, it must answer without being sent it again."""
    ids = [batch.batch_id for batch in pending]
    # Expected before open goes out: the replay may come right behind opened.
    for batch in pending:
        talk.ledger.expect(batch, talk.keys)
    retained = set((await talk.open(pending=ids)).retained_batch_ids)
    if not retained <= set(ids):
        raise talk.broken("retained_batch_ids names batches that are not pending")
    for batch_id in retained:
        talk.ledger.fly(batch_id)
    return retained


@optional(
    "O10",
    "retention",
    "Results outlive a broken stream for this long, so that a resumed session need not resend.",
    "keep batches and results of a broken stream for result_retention, or leave it unset",
)
async def retention(run: Run) -> str | None:
    """What was accepted outlives a broken stream, where that is announced."""
    kept = run.info.capabilities.result_retention
    if not (kept.seconds or kept.nanos):
        raise Skipped("not announced")
    async with run.talk() as broken_off:
        await broken_off.open()
        finished, begun = run.work.many(3), run.work.many(32)
        await broken_off.send(finished)
        await broken_off.settled(finished)
        await broken_off.send(begun)
        entry = broken_off.ledger.entries[begun.batch_id]
        # A result shows that it was accepted.
        await broken_off.wait(lambda: bool(entry.outcomes) or entry.settled, "the first result")
        broken_off.break_off()
        async with run.talk() as talk:
            talk.session_id = broken_off.session_id
            retained = await _reopen(talk, [finished, begun])
            for batch, what in ((finished, "finished"), (begun, "begun")):
                if batch.batch_id not in retained:
                    raise talk.broken(f"a {what} batch was no longer held right after the stream broke")
            await talk.settled(finished, begun)
            await run.sound(talk)
            before, after = broken_off.outcomes(finished), talk.outcomes(finished)
            if before.keys() == after.keys() and any(
                before[pair].kind == "score" and before[pair].value != after[pair].value for pair in before
            ):
                raise talk.broken("the replayed results of a finished batch have other values than before")
    return None


@optional(
    "O11",
    "newer-stream",
    "a newer stream opened the same session, and this one is over.",
    "remember the stream of each session_id, and end the older one with ABORTED when a newer one opens it",
)
async def newer_stream(run: Run) -> str | None:
    """A second stream of a session ends the first one."""
    async with run.talk() as older:
        await older.open()
        async with run.talk(wire=run.connect()) as newer:
            newer.session_id = older.session_id
            await newer.open()
            try:
                ending = await older.ended("ABORTED on the older stream", run.brief)
            except Late as late:
                raise Broken(late.found, late.exchange) from None
            if ending.code is not grpc.StatusCode.ABORTED:
                raise older.broken(f"the older stream ended with {ending}")
            batch = run.work.many(2)
            await newer.send(batch)
            await newer.settled(batch)
            await run.sound(newer)
    return None


RULES: Final = (sessions_apart, resume)
OPTIONAL_RULES: Final = (retention, newer_stream)
