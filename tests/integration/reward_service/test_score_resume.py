"""Batches sent again, streams that break and come back: each result once per stream, each computed once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest
from score_conversation import Conversation, batches_of, details_of, eventually, texts

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service import Item, Reward, reward


class Counted:
    """A reward that counts how often each completion was scored, and waits where the test says so."""

    def __init__(self) -> None:
        self.computed: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()

        @reward(name="counted", description="Counts.")
        async def counted(item: Item) -> float:
            try:
                if item.text.startswith("wait"):
                    await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled[item.text] += 1
                raise
            self.computed[item.text] += 1
            return 1.0

        self.reward: Reward = counted


@pytest.fixture
def counted() -> Counted:
    return Counted()


async def broken(talk: Conversation) -> None:
    """Breaks a stream, as a cut connection does."""
    talk.call.cancel()
    with pytest.raises(asyncio.CancelledError):
        while await talk.read() is not None:
            pass


async def test_a_batch_sent_twice_on_a_stream_is_answered_once(serve: Any, counted: Counted) -> None:
    counted.gate.clear()
    talk = Conversation(await serve(counted.reward))
    await talk.open("counted")
    again = texts("a", "x", "wait", timeout=1.0)
    again.step, again.traceparent = 7, "00-1-1-00"
    await talk.send(texts("a", "x", "wait"), again)
    counted.gate.set()
    await talk.until("a")
    await talk.send(texts("a", "x", "wait"), again)  # done by now
    await talk.close()
    assert len(talk.results) == 2
    assert talk.frames.count("done") == 1
    assert not talk.rejected
    assert counted.computed == {"x": 1, "wait": 1}


@pytest.mark.parametrize("done", [False, True])
async def test_an_id_with_other_content_is_a_conflict(serve: Any, counted: Counted, done: bool) -> None:
    counted.gate.clear()
    talk = Conversation(await serve(counted.reward))
    await talk.open("counted")
    await talk.send(texts("a", "wait"))
    if done:
        counted.gate.set()
        await talk.until("a")
    for other in (texts("a", "other"), texts("a", "wait", keys=["counted"])):
        await talk.send(other)
        while await talk.read() is not None:
            if talk.rejected:
                break
        assert talk.rejected.pop("a").code == pb.Failure.CODE_CONFLICT
    counted.gate.set()
    await talk.close()
    assert talk.values("a") == {"0": 1.0}
    assert counted.computed == {"wait": 1}


async def test_a_broken_stream_is_resumed_and_nothing_is_computed_twice(serve: Any, counted: Counted) -> None:
    counted.gate.clear()
    first = Conversation(await serve(counted.reward))
    await first.open("counted")
    await first.send(texts("over", "o"), texts("half", "h", "wait h"), texts("open", "wait o"))
    await first.until("over")
    while not first.of("half"):
        await first.read()
    await broken(first)
    counted.gate.set()  # the work goes on while nobody listens
    second = Conversation(serve.channel(), first.session_id)
    opened = await second.open("counted", pending=["half", "open", "lost"])
    assert list(opened.retained_batch_ids) == ["half", "open"]
    await second.send(texts("lost", "l"))
    await second.close()
    assert second.values("half") == {"0": 1.0, "1": 1.0}
    assert second.values("open") == {"0": 1.0}
    assert second.values("lost") == {"0": 1.0}
    assert second.done["half"].scored_count == 2
    assert not second.of("over")
    assert counted.computed == {"o": 1, "h": 1, "wait h": 1, "wait o": 1, "l": 1}


async def test_a_finished_batch_is_replayed_on_a_new_stream_when_it_is_sent_again(
    serve: Any, counted: Counted
) -> None:
    first = Conversation(await serve(counted.reward))
    await first.open("counted")
    await first.send(texts("a", "x"))
    await first.until("a")
    await broken(first)
    second = Conversation(serve.channel(), first.session_id)
    assert list((await second.open("counted", pending=["a"])).retained_batch_ids) == ["a"]
    await second.until("a")
    await broken(second)
    third = Conversation(serve.channel(), first.session_id)
    await third.open("counted")
    await third.send(texts("a", "x"), texts("a", "x"))
    await third.close()
    assert [len(talk.results) for talk in (first, second, third)] == [1, 1, 1]
    assert counted.computed == {"x": 1}


async def test_the_timeout_of_a_batch_runs_on_while_the_stream_is_away(serve: Any, counted: Counted) -> None:
    counted.gate.clear()
    first = Conversation(await serve(counted.reward))
    await first.open("counted")
    await first.send(texts("a", "wait", timeout=0.2))
    await broken(first)
    await asyncio.sleep(0.3)
    second = Conversation(serve.channel(), first.session_id)
    await second.open("counted", pending=["a"])
    await second.until("a")
    assert second.codes("a") == {"0": "CODE_TIMEOUT"}
    assert counted.cancelled == {"wait": 1}


@pytest.mark.parametrize("retention", [0.0, 0.2])
async def test_after_the_retention_nothing_is_left(serve: Any, counted: Counted, retention: float) -> None:
    counted.gate.clear()
    first = Conversation(await serve(counted.reward, result_retention_seconds=retention))
    await first.open("counted")
    await first.send(texts("a", "x", "wait"))
    while not first.results:
        await first.read()
    await broken(first)
    await eventually(lambda: counted.cancelled and not serve.last.engine.session_count)
    second = Conversation(serve.channel(), first.session_id)
    assert not (await second.open("counted", pending=["a"])).retained_batch_ids
    counted.gate.set()
    await second.send(texts("a", "x", "wait"))
    await second.close()
    assert second.values("a") == {"0": 1.0, "1": 1.0}
    assert counted.computed == {"x": 2, "wait": 1}


async def test_results_of_a_long_session_are_forgotten_but_never_repeated_on_its_stream(
    serve: Any, counted: Counted
) -> None:
    talk = Conversation(await serve(counted.reward, window=2, result_retention_seconds=0.1))
    await talk.open("counted")
    for number in range(30):
        await talk.send(texts(str(number), f"x{number}"))
        await talk.until(str(number))
    await asyncio.sleep(0.15)
    await talk.send(texts("last", "y"), texts("0", "x0"), texts("29", "x29"), texts("0", "other"))
    await talk.close()
    assert len(talk.results) == 31
    assert talk.rejected["0"].code == pb.Failure.CODE_CONFLICT
    assert set(counted.computed.values()) == {1}


async def test_a_second_stream_of_a_session_ends_the_first(serve: Any, counted: Counted) -> None:
    counted.gate.clear()
    first = Conversation(await serve(counted.reward))
    await first.open("counted")
    await first.send(texts("a", "wait"))
    await eventually(lambda: batches_of(serve))
    second = Conversation(serve.channel(), first.session_id)
    assert list((await second.open("counted", pending=["a"])).retained_batch_ids) == ["a"]
    error = await first.ending()
    assert error.code() is grpc.StatusCode.ABORTED
    assert details_of(error)["reason"] == "SUPERSEDED"
    counted.gate.set()
    await second.close()
    assert second.values("a") == {"0": 1.0}
    assert counted.computed == {"wait": 1}


async def test_a_batch_that_is_not_pending_any_more_is_stopped_and_leaves_the_window(
    serve: Any, counted: Counted
) -> None:
    counted.gate.clear()
    first = Conversation(await serve(counted.reward, window=2))
    await first.open("counted")
    await first.send(texts("given up", "wait 1", "wait 2"))
    second = Conversation(serve.channel(), first.session_id)
    await eventually(lambda: batches_of(serve))
    assert not (await second.open("counted")).retained_batch_ids
    await second.send(texts("new", "x", "y"))
    await second.close()
    assert second.values("new") == {"0": 1.0, "1": 1.0}
    assert counted.cancelled == {"wait 1": 1, "wait 2": 1}


async def test_other_rewards_make_another_session(serve: Any, counted: Counted) -> None:
    first = Conversation(await serve(counted.reward))
    await first.open("counted")
    await first.send(texts("a", "x"))
    await first.until("a")
    await broken(first)
    second = Conversation(serve.channel(), first.session_id)
    opened = await second.open_with(
        pb.SessionOpen(
            session_id=first.session_id,
            protocol_version=1,
            rewards=[pb.RewardSelection(key="other", name="counted")],
            pending_batch_ids=["a"],
        )
    )
    assert not opened.retained_batch_ids
    await second.send(texts("a", "x"))
    await second.close()
    assert second.results[0].reward_key == "other"


async def test_sessions_do_not_see_each_others_batches(serve: Any, counted: Counted) -> None:
    first = Conversation(await serve(counted.reward))
    second = Conversation(serve.channel())
    await first.open("counted")
    await second.open("counted", pending=["a"])
    await first.send(texts("a", "x"))
    await second.send(texts("a", "y", "z"))
    await first.close()
    await second.close()
    assert (len(first.results), len(second.results)) == (1, 2)
