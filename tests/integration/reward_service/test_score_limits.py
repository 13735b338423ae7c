"""Windows, sizes, sessions, fairness: what one client can ask for is bounded, and costs the others little."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from score_conversation import Conversation, batch, batches_of, details_of, eventually, group, texts

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.types.scoring import Failed, FailureCode
from reward_service import Item, reward
from reward_service._stream import Opened, Stream


class Slow:
    """A reward that runs until the test lets it go."""

    def __init__(self, concurrency: int = 256) -> None:
        self.gate = asyncio.Event()
        self.order: list[str] = []
        self.running = 0
        self.peak = 0

        @reward(name="slow", description="Waits.", concurrency=concurrency)
        async def slow(item: Item) -> float:
            self.order.append(item.text)
            self.running += 1
            self.peak = max(self.peak, self.running)
            await self.gate.wait()
            await asyncio.sleep(0)
            self.running -= 1
            return 1.0

        self.reward = slow


async def test_beyond_the_window_a_batch_is_rejected_and_may_come_again(serve: Any) -> None:
    slow = Slow()
    talk = Conversation(await serve(slow.reward, window=4))
    assert (await talk.open("slow")).max_in_flight_completions == 4
    await talk.send(texts("a", *"abc"), texts("full", "d"), texts("over", "e"))
    await talk.until("over")
    failure = talk.rejected.pop("over")
    assert failure.code == pb.Failure.CODE_LIMIT_EXCEEDED
    assert failure.retry_delay.ToSeconds() > 0
    assert "window of 4" in failure.message
    slow.gate.set()
    await talk.until("a", "full")
    await talk.send(texts("over", "e"))
    await talk.close()
    assert talk.values("over") == {"0": 1.0}


async def test_a_batch_larger_than_the_window_is_taken_when_nothing_is_in_flight(serve: Any) -> None:
    slow = Slow()
    talk = Conversation(await serve(slow.reward, window=2))
    await talk.open("slow")
    await talk.send(texts("large", *"abcdefgh"), texts("next", "i"))
    await talk.until("next")
    assert talk.rejected["next"].code == pb.Failure.CODE_LIMIT_EXCEEDED
    slow.gate.set()
    await talk.until("large")
    await talk.send(texts("large again", *"abcdefgh"))
    await talk.close()
    assert len(talk.of("large")) == len(talk.of("large again")) == 8


async def test_a_completion_is_in_flight_until_it_has_all_its_results(serve: Any) -> None:
    slow = Slow()

    @reward(name="quick", description="Is quick.")
    async def quick(item: Item) -> float:
        return 1.0

    talk = Conversation(await serve(slow.reward, quick, window=2))
    await talk.open("slow", "quick")
    await talk.send(texts("a", "x", "y"))
    while len(talk.results) < 2:
        await talk.read()
    await talk.send(texts("b", "z"))
    await talk.until("b")
    assert "b" in talk.rejected
    slow.gate.set()
    await talk.close()
    assert talk.done["a"].scored_count == 4


async def test_a_batch_beyond_the_servers_size_is_rejected(serve: Any) -> None:
    slow = Slow()
    talk = Conversation(await serve(slow.reward, max_batch_completions=3))
    await talk.open("slow")
    await talk.send(texts("large", *"abcd"))
    await talk.until("large")
    assert talk.rejected["large"].code == pb.Failure.CODE_LIMIT_EXCEEDED
    assert not talk.rejected["large"].HasField("retry_delay")


async def test_a_smaller_window_is_no_ground_for_refusal_and_a_larger_one_is_used(serve: Any) -> None:
    slow = Slow()
    talk = Conversation(await serve(slow.reward, window=4))
    await talk.open("slow")
    serve.last.change_window(1)
    await talk.read()
    await talk.send(texts("crossed", *"abcd"))
    serve.last.change_window(6)
    await talk.read()
    await talk.send(texts("more", *"ef"), texts("over", "g"))
    await talk.until("over")
    assert "over" in talk.rejected
    slow.gate.set()
    await talk.close()
    assert len(talk.of("crossed") | talk.of("more")) == 4
    assert {"crossed", "more"} == set(talk.done)
    other = Conversation(serve.channel())
    assert (await other.open("slow")).max_in_flight_completions == 6


async def test_too_many_sessions_are_refused_but_those_that_are_gone_make_room(serve: Any) -> None:
    slow = Slow()
    slow.gate.set()
    talks = [Conversation(await serve(slow.reward, max_sessions=2)), Conversation(serve.channel())]
    for talk in talks:
        await talk.open("slow")
    refused = Conversation(serve.channel())
    await refused.call.write(
        pb.ScoreRequest(
            open=pb.SessionOpen(
                session_id="third", protocol_version=1, rewards=[pb.RewardSelection(key="s", name="slow")]
            )
        )
    )
    error = await refused.ending()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details_of(error)["reason"] == "TOO_MANY_SESSIONS"
    assert details_of(error)["retry_delay"] > 0
    await talks[0].close()
    await eventually(lambda: serve.last.engine._attached == 1)
    await Conversation(serve.channel()).open("slow")
    assert serve.last.engine.session_count == 2


async def test_sessions_take_turns(serve: Any) -> None:
    slow = Slow(concurrency=1)
    greedy, modest = Conversation(await serve(slow.reward)), Conversation(serve.channel())
    await greedy.open("slow")
    await modest.open("slow")
    await greedy.send(texts("a", *[f"greedy {i}" for i in range(100)]))
    await eventually(lambda: slow.order)
    await modest.send(texts("b", "modest 0", "modest 1"))
    await eventually(lambda: len(batches_of(serve)) == 2)
    slow.gate.set()
    await modest.close()
    await greedy.close()
    assert slow.peak == 1
    assert slow.order[:6] == ["greedy 0", "greedy 1", "modest 0", "greedy 2", "modest 1", "greedy 3"]


async def test_a_stuck_reward_does_not_stop_another(serve: Any) -> None:
    stuck = Slow(concurrency=1)

    @reward(name="quick", description="Is quick.")
    async def quick(item: Item) -> float:
        return 1.0

    talk = Conversation(await serve(stuck.reward, quick))
    await talk.open("slow", "quick")
    await talk.send(texts("a", *"abc"))
    while sum(result.reward_key == "quick" for result in talk.results) < 3:
        await talk.read()
    await talk.cancel("a")
    await talk.close()
    assert (talk.done["a"].scored_count, talk.done["a"].failed_count) == (3, 3)
    assert stuck.order == ["a"]


async def test_the_reading_of_frames_waits_for_a_client_that_does_not_read() -> None:
    stream = Stream(Opened(1, []))
    frames = stream.frames()
    await anext(frames)
    for number in range(255):
        stream.reject(str(number), Failed(FailureCode.INVALID, "bad"))
    await asyncio.wait_for(stream.room(), 1)
    stream.reject("255", Failed(FailureCode.INVALID, "bad"))
    room = asyncio.create_task(stream.room())
    await asyncio.sleep(0)
    assert not room.done()
    stream.half_close()
    assert len([frame async for frame in frames]) == 256
    await asyncio.wait_for(room, 1)


async def test_a_client_that_never_reads_is_not_read_either(serve: Any) -> None:
    slow = Slow()
    slow.gate.set()
    await serve(slow.reward, window=64)
    # Without probing, so little fits into the connection that it is full soon.
    channel = grpc.aio.insecure_channel(serve.address, options=[("grpc.http2.bdp_probe", 0)])
    serve.channels.append(channel)
    talk = Conversation(channel)
    await talk.open("slow")
    malformed = [group([])] * 30  # refused with a long explanation
    sent = 0

    async def flood() -> None:
        nonlocal sent
        for number in range(1_000_000):
            await talk.send(batch(str(number), *malformed), batch(f"good {number}", group(["x"])))
            sent += 1

    flooding = asyncio.create_task(flood())
    still = 0
    while still < 5:
        before = sent
        await asyncio.sleep(0.1)
        still = still + 1 if sent == before else 0
    flooding.cancel()
    (session,) = serve.last.engine._sessions.values()
    assert session.stream is not None
    assert len(session.stream._frames) <= 2 * 256
    assert sum(len(indexes) for _, indexes in session.stream._results) <= 64
