"""Rules about batches: groups, keys, places and ids."""

from __future__ import annotations

from typing import Final

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._faults import JOINING, Fault
from reward_service.conformance._ledger import Outcome, told
from reward_service.conformance._rule import Broken, Skipped, optional, required
from reward_service.conformance._run import KEY, Run
from reward_service.conformance._talk import Late, Talk
from reward_service.conformance._work import TEXTS

_LINGER_SECONDS: Final = 1.0


@required(
    "R19",
    "any-order",
    "in any order, of any batch, as many in a frame as are ready.",
    "keep each completion beside its group's columns and its ids; nothing may depend on its place in a batch",
)
async def any_order(run: Run) -> str | None:
    """Several batches of several groups in flight; a completion is worth the same in any place."""
    work = run.work
    forwards = [work.group([text]) for text in TEXTS[: work.most]]
    backwards = [work.group([text], row=work.rows[0]) for text in reversed(TEXTS[: work.most])]
    if work.most >= 2 * len(TEXTS):
        backwards += [work.group(TEXTS[:3], row=work.rows[0]), work.group(TEXTS[3:], row=work.rows[0])]
    first = work.batch(*[work.group([text], row=work.rows[0]) for text in TEXTS[: work.most]])
    again, second, third = work.batch(*first.groups), work.batch(*backwards), work.batch(*forwards)
    async with run.talk() as talk:
        await talk.open()
        await talk.send(first, again, second, third)
        await talk.settled(first, again, second, third)
        await run.sound(talk)
        if not (run.reward.deterministic and run.per_completion):
            return "places not compared: the reward is not announced as deterministic by completion"
        if _words(talk.outcomes(first)) != _words(talk.outcomes(again)):
            return "places not compared: the reward is not deterministic, see O05"
        values: dict[str, str] = {}
        for batch in (first, second):
            outcomes = talk.outcomes(batch)
            for group in batch.groups:
                for completion in group.completions:
                    outcome = outcomes.get((completion.completion_id, KEY))
                    if outcome is None or outcome.kind == "failure":
                        continue
                    word = told(outcome)
                    if values.setdefault(completion.text, word) != word:
                        raise talk.broken(
                            f"the same completion of the same row got {values[completion.text]} in one place "
                            f"and {word} in another, and the reward says that it is deterministic"
                        )
    return None


def _words(outcomes: dict[tuple[str, str], Outcome]) -> dict[tuple[str, str], str]:
    return {pair: told(outcome) for pair, outcome in outcomes.items()}


@required(
    "R20",
    "two-keys",
    "The same reward may be selected several times with different configurations, under different keys.",
    "keep the rewards of a session by key, not by name, and answer each completion once for each key",
)
async def two_keys(run: Run) -> str | None:
    """One reward under two keys gives two results for each completion."""
    async with run.talk(run.selection("first"), run.selection("second")) as talk:
        await talk.open()
        batch = run.work.many(4)
        await talk.send(batch)
        await talk.settled(batch)
        await run.sound(talk)
    return None


@required(
    "R21",
    "reward-keys",
    "Which of the session's rewards to compute, by RewardSelection.key. Empty: all.",
    "compute the keys that batch.reward_keys names, and all of the session's where it is empty",
)
async def reward_keys(run: Run) -> str | None:
    """A batch gets results for the keys that it names, and for no others."""
    work = run.work
    async with run.talk(run.selection("first"), run.selection("second")) as talk:
        await talk.open()
        groups = [work.group([text]) for text in TEXTS[: min(3, work.most)]]
        batches = [work.batch(*groups, keys=[key]) for key in ("second", "first")]
        await talk.send(*batches)
        await talk.settled(*batches)
        await run.sound(talk)
    return None


@required(
    "R27",
    "failing-item",
    "Failures of a batch or of one completion are data and never end the stream.",
    "catch what a completion raises and answer it with a failure; its siblings are scored all the same",
)
async def failing_item(run: Run) -> str | None:
    """A row without columns is answered, and spoils nothing beside it."""
    work = run.work
    if work.most < 3:
        raise Skipped(f"a batch has at most {work.most} completions")
    bare = work.group(TEXTS[:1], columns={})
    beside = work.group(TEXTS[:2], row=work.rows[0])
    alone = work.batch(work.group(TEXTS[:2], row=work.rows[0]))
    mixed = work.batch(bare, beside)
    async with run.talk() as talk:
        await talk.open()
        await talk.send(alone, mixed)
        await talk.settled(alone, mixed)
        await run.sound(talk, but=(Fault.REJECTED,))
        alone_rejected = talk.ledger.entries[alone.batch_id].rejected is not None
        if talk.ledger.entries[mixed.batch_id].rejected is not None and not alone_rejected:
            raise talk.broken(
                "a batch was rejected for one row without columns; the other row was lost with it"
            )
        kinds = [
            [talk.outcomes(batch)[c.completion_id, KEY].kind for c in group.completions]
            for batch, group in ((alone, alone.groups[0]), (mixed, beside))
            if all((c.completion_id, KEY) in talk.outcomes(batch) for c in group.completions)
        ]
        if len(kinds) == 2 and "failure" not in kinds[0] and "failure" in kinds[1]:
            raise talk.broken("completions that are scored alone fail beside a row without columns")
    return None


@required(
    "R32",
    "bundles",
    "Where it does not, or the server does not know this field, every `done` has a frame of its own.",
    "where open sets reads_bundled_done and reads_plain_scores, send each done and each score in one of its "
    "two forms, not in both, and as many ids as values in plain_scores",
)
async def bundles(run: Run) -> str | None:
    """Where `done` and plain scores may stand among results, each still comes once, and `done` last."""
    async with run.talk(reads_bundles=True) as talk:
        await talk.open()
        batches = [run.work.many(4), run.work.many(1), run.work.many(3)]
        await talk.send(*batches)
        await talk.settled(*batches)
        last = run.work.many(2)
        await talk.send(last)
        await talk.settled(last)
        await run.sound(talk)
    return None


@optional(
    "O05",
    "deterministic",
    "Whether equal inputs and config always give equal values.",
    "set Reward.deterministic to false, or take out what is random, or depends on time or order",
)
async def deterministic(run: Run) -> str | None:
    """Equal inputs give equal values, where that is announced."""
    if not run.reward.deterministic:
        raise Skipped("not announced")
    seen: list[list[str]] = []
    group = run.work.group(TEXTS[: run.work.most], row=run.work.rows[0])
    for _ in range(2):
        async with run.talk() as talk:
            await talk.open()
            for _ in range(2):
                batch = run.work.batch(group)
                await talk.send(batch)
                await talk.settled(batch)
                outcomes = talk.outcomes(batch)
                seen.append(
                    [told(outcomes[pair]) for pair in sorted(outcomes) if outcomes[pair].kind != "failure"]
                )
                if seen[-1] != seen[0]:
                    raise talk.broken(f"{_difference(seen[0], seen[-1])} for equal inputs")
    return None


def _difference(first: list[str], second: list[str]) -> str:
    if len(first) != len(second):
        return f"{len(first)} values, then {len(second)}"
    return next(f"{a}, then {b}" for a, b in zip(first, second, strict=True) if a != b)


@optional(
    "O08",
    "same-batch-again",
    "Repeating a batch under its id is always safe.",
    "remember the ids of the stream's batches, and do not answer one again that was answered on it",
)
async def same_batch_again(run: Run) -> str | None:
    """A batch that is sent twice on one stream is answered once."""
    async with run.talk() as talk:
        await talk.open()
        batch, last = run.work.many(4), run.work.many(2)
        await talk.send(batch)
        await talk.send_now(batch)
        await talk.settled(batch)
        await talk.send_now(batch)
        await talk.send(last)
        await talk.settled(last)
        await _quiet_after(talk)
        await run.sound(talk)
    return None


async def _quiet_after(talk: Talk) -> None:
    """Reads what was still on its way: the end of the stream comes after it."""
    try:
        await talk.half_close()
        await talk.ended("the end", _LINGER_SECONDS)
    except Broken:
        pass  # R17 is about that


@optional(
    "O09",
    "conflict",
    "with other groups or reward_keys it is rejected with CODE_CONFLICT",
    "compare a batch whose id was used before with what it was, and reject another one with CODE_CONFLICT",
)
async def conflict(run: Run) -> str | None:
    """The id of a batch cannot be used for other content."""
    async with run.talk() as talk:
        await talk.open()
        batch = run.work.many(3)
        await talk.send(batch)
        await talk.settled(batch)
        other = run.work.batch(run.work.group(TEXTS[:1]), batch_id=batch.batch_id)
        last = run.work.many(2)
        await talk.send_now(other)
        await talk.send(last)
        await talk.settled(last)
        entry = talk.ledger.entries[batch.batch_id]
        try:
            await talk.wait(
                lambda: entry.rejected is not None or bool(talk.ledger.faults & JOINING),
                "rejected",
                run.brief,
            )
        except Late:
            raise talk.broken("other content under the id of a finished batch was ignored") from None
        if entry.rejected is None:
            raise talk.broken("other content under the id of a finished batch was answered")
        if entry.rejected.code != pb.Failure.CODE_CONFLICT:
            raise talk.broken("it was rejected, and not with CODE_CONFLICT")
    return None


@optional(
    "O17",
    "malformed-batch",
    "A batch that is not accepted gets `rejected` and nothing else.",
    "check a batch before it is scored; reject one with unknown reward_keys, doubled or empty completion ids "
    "or without groups with CODE_INVALID, and go on",
)
async def malformed_batch(run: Run) -> str | None:
    """Malformed batches are rejected, and the stream goes on."""
    work = run.work
    malformed = {
        "a reward key that the session does not have": work.batch(
            work.group(TEXTS[:1]), keys=("no-such-key",)
        ),
        "no groups": work.batch(),
        "a group without completions": work.batch(work.group([])),
        "an empty completion id": work.batch(work.group(TEXTS[:1], ids=[""])),
        "two completions with one id": work.batch(work.group(TEXTS[:2], ids=["twin", "twin"])),
    }
    async with run.talk() as talk:
        await talk.open()
        for batch in malformed.values():
            await talk.send_now(batch)
        last = work.many(2)
        await talk.send_now(last)
        await talk.settled(last)
        wrong = []
        for what, batch in malformed.items():
            entry = talk.ledger.entries[batch.batch_id]
            if not entry.settled:
                try:
                    await talk.settled(batch, seconds=run.brief)
                except Late:
                    wrong.append(f"{what}: no answer")
                    continue
            if entry.rejected is None:
                wrong.append(f"{what}: accepted")
            elif entry.rejected.code != pb.Failure.CODE_INVALID:
                wrong.append(f"{what}: rejected, and not with CODE_INVALID")
        if wrong:
            raise talk.broken("; ".join(wrong))
    return None


RULES: Final = (any_order, two_keys, reward_keys, failing_item, bundles)
OPTIONAL_RULES: Final = (deterministic, same_batch_again, conflict, malformed_batch)
