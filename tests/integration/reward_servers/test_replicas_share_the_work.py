"""Several replicas behind one name share the work; who only sits at the address of one gets none of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from secured import Keys, kit_server

from plaudit.scoring import RewardScorer
from plaudit.types.access import ServerAccess
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import ChatMessage, Completion, FinishReason, Prompt, Scored
from reward_service import Item, Reward, reward

GROUPS = 60
GROUP_SIZE = 8


def counting(place: int, seen: Counter[int], pause: float) -> Reward:
    @reward(name="half", min_value=0.0, max_value=1.0)
    async def half(items: list[Item]) -> list[float]:
        """Half for everyone, after a while."""
        seen[place] += len(items)
        await asyncio.sleep(pause)
        return [0.5] * len(items)

    return half


def scored(scorer: RewardScorer, step: int, *, groups: int) -> Counter[str]:
    """How the completions of a step came out."""
    ids = []
    for group in range(groups):
        prompt = Prompt(f"{step}-g{group}", (ChatMessage("user", "?"),), {}, "?")
        for member in range(GROUP_SIZE):
            ids.append(f"{step}-{group * GROUP_SIZE + member}")
            completion = Completion(ids[-1], "x", 1, FinishReason.STOP)
            scorer.submit(prompt, completion, step=step, group_size=GROUP_SIZE)
    assert scorer.wait(ids, 60)
    return Counter(
        "scored" if isinstance(scores["half"].outcome, Scored) else str(scores["half"].outcome)
        for scores in (taken.outcomes for taken in scorer.take(ids).values())
    )


async def test_every_replica_gets_its_part_over_tls_with_tokens(keys: Keys) -> None:
    """Four replicas, of which one takes thirty times as long: it gets the least, and nobody gets all."""
    seen: Counter[int] = Counter()
    access = ServerAccess.model_validate(
        {"tls": {"ca": "judge", "server_name": "judge.example"}, "credential": "judge"}
    )
    async with AsyncExitStack() as stack:
        addresses = [
            await stack.enter_async_context(
                kit_server(keys.server(token=True), counting(place, seen, 0.3 if place == 3 else 0.01))
            )
            for place in range(4)
        ]
        target = RewardTarget(
            binding=RewardBinding(name="half", server="judge", reward="half"),
            addresses=tuple(addresses),
            access=access,
        )

        def score() -> Counter[str]:
            scorer = RewardScorer(
                [target], session_scope="run", job_id="job", model="m", secrets=keys.secrets
            )
            with scorer:
                assert scorer.wait_ready(60)
                # One session is open then: work goes on in small parts until every replica has had some.
                for step in range(1, 1000):
                    if all(seen[place] for place in range(4)):
                        break
                    assert set(scored(scorer, step, groups=4)) == {"scored"}
                seen.clear()
                return scored(scorer, 1000, groups=GROUPS)

        outcomes = await asyncio.to_thread(score)
    assert outcomes == {"scored": GROUPS * GROUP_SIZE}
    assert sum(seen.values()) == GROUPS * GROUP_SIZE
    assert all(seen[place] > 0 for place in range(4)), seen
    assert seen[3] == min(seen.values()), seen
    assert max(seen.values()) < 0.75 * GROUPS * GROUP_SIZE, seen


async def test_an_impostor_at_the_same_address_scores_nothing_and_hears_no_token(keys: Keys) -> None:
    """The real server is gone, and another process answers on its port, with a certificate of its own."""
    real: Counter[int] = Counter()
    false: Counter[int] = Counter()
    access = ServerAccess.model_validate(
        {"tls": {"ca": "judge", "server_name": "judge.example"}, "credential": "judge"}
    )
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(AsyncExitStack())
        address = await server.enter_async_context(
            kit_server(keys.server(token=True), counting(0, real, 0.0))
        )
        target = RewardTarget(
            binding=RewardBinding(name="half", server="judge", reward="half", retry_seconds=3.0),
            addresses=(address,),
            access=access,
        )
        scorer = RewardScorer(
            [target],
            session_scope="run",
            job_id="job",
            model="m",
            secrets=keys.secrets,
        )
        await asyncio.to_thread(scorer.__enter__)
        stack.push_async_callback(asyncio.to_thread, scorer.close)
        assert await asyncio.to_thread(scorer.wait_ready, 60)
        assert await asyncio.to_thread(scored, scorer, 1, groups=1) == {"scored": GROUP_SIZE}
        await server.aclose()
        impostor = kit_server(
            keys.server("impostor"), counting(0, false, 0.0), port=int(address.rpartition(":")[2])
        )
        await stack.enter_async_context(impostor)
        (told,) = await asyncio.to_thread(scored, scorer, 2, groups=1)
    assert "could not be reached" in told
    assert 'not signed by CA "judge"' in told
    assert (real[0], false[0]) == (GROUP_SIZE, 0)
