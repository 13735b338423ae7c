"""Rules about MakeExamples."""

from __future__ import annotations

from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._ledger import shown
from reward_service.conformance._rule import Broken, Skipped, optional
from reward_service.conformance._run import KEY, Run
from reward_service.conformance._settings import Row

_MOST_TEXTS: Final = 64


@optional(
    "O25",
    "examples",
    "texts that a reward ought to score high and texts that it ought to score low.",
    "answer at most one entry for each group, under its group_id, with good texts that the reward scores "
    "higher than the bad ones",
)
async def examples(run: Run) -> str | None:
    """Good examples score higher than bad ones."""
    rows = list(run.work.rows[:4])
    groups = [run.work.group([], row=row) for row in rows]
    made = await _made(run, groups)
    by_id = {group.group_id: row for group, row in zip(groups, rows, strict=True)}
    seen: set[str] = set()
    for entry in made.examples:
        if entry.group_id not in by_id or entry.group_id in seen:
            raise Broken(f"examples for group {shown(entry.group_id)}, which was not asked for, or twice")
        seen.add(entry.group_id)
        if run.per_completion:
            await _compare(run, entry, by_id[entry.group_id])
    return f"{len(made.examples)} of {len(groups)} rows have examples"


async def _made(run: Run, groups: list[pb.PromptGroup]) -> pb.MakeExamplesResponse:
    request = pb.MakeExamplesRequest(reward=run.selection(), groups=groups)
    try:
        raw = await run.wire.make_examples(request, run.timeout)
        return pb.MakeExamplesResponse.FromString(raw)
    except DecodeError as error:
        raise Broken(f"the answer of {len(raw)} bytes is no MakeExamplesResponse: {error}") from None
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped("MakeExamples is not implemented") from None
        raise Broken(f"MakeExamples ended with {error.code().name} {shown(error.details() or '')}") from None


async def _compare(run: Run, entry: pb.GroupExamples, row: Row) -> None:
    most = min(run.work.most, _MOST_TEXTS)
    good, bad = list(entry.good_texts)[: most // 2], list(entry.bad_texts)[: most // 2]
    if not good or not bad:
        return
    batch = run.work.batch(run.work.group([*good, *bad], row=row))
    async with run.talk() as talk:
        await talk.open()
        await talk.send(batch)
        await talk.settled(batch)
        outcomes = talk.outcomes(batch)
        ids = [completion.completion_id for completion in batch.groups[0].completions]
        values = [outcomes[id, KEY].value for id in ids if (id, KEY) in outcomes]
        if len(values) < len(ids) or not min(values[: len(good)]) > max(values[len(good) :]):
            told = ", ".join(f"{value:g}" for value in values)
            raise talk.broken(f"{len(good)} good and then {len(bad)} bad texts got {told}")


OPTIONAL_RULES: Final = (examples,)
