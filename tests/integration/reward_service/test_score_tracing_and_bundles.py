"""What a client may ask for besides: dones that travel with results, and a trace to log under."""

from __future__ import annotations

from typing import Any

import structlog
from score_conversation import Conversation, texts

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service import Item, reward

TRACE = "0af7651916cd43dd8448eb211c80319c"


@reward(description="Length of the text.", min_value=0)
async def length(items: list[Item]) -> list[float]:
    return [float(len(item.text)) for item in items]


async def opened(channel: Any, *, bundled: bool) -> Conversation:
    talk = Conversation(channel)
    selection = pb.RewardSelection(key="length", name="length")
    await talk.open_with(
        pb.SessionOpen(
            session_id=talk.session_id,
            protocol_version=1,
            rewards=[selection],
            reads_bundled_done=bundled,
        )
    )
    return talk


async def frames_of(talk: Conversation) -> list[pb.ScoreResponse]:
    frames = []
    await talk.call.done_writing()
    while isinstance(frame := await talk.call.read(), pb.ScoreResponse):
        frames.append(frame)
    return frames


async def test_done_travels_with_the_last_results_where_the_client_reads_it_there(serve: Any) -> None:
    talk = await opened(await serve(length), bundled=True)
    await talk.send(texts("a", *["x"] * 600), texts("b", "y"))
    frames = await frames_of(talk)
    assert {frame.WhichOneof("frame") for frame in frames} == {"results"}
    done = {d.batch_id: (d.scored_count, place) for place, f in enumerate(frames) for d in f.results.done}
    assert {batch_id: count for batch_id, (count, _) in done.items()} == {"a": 600, "b": 1}
    for batch_id, (count, place) in done.items():
        results = [
            r for frame in frames[: place + 1] for r in frame.results.results if r.batch_id == batch_id
        ]
        assert len(results) == count  # all of them came before, or with it


async def test_done_has_a_frame_of_its_own_for_every_other_client(serve: Any) -> None:
    talk = await opened(await serve(length), bundled=False)
    await talk.send(texts("a", *["x"] * 600), texts("b", "y"))
    frames = await frames_of(talk)
    assert not any(frame.results.done for frame in frames)
    assert sorted(frame.done.batch_id for frame in frames if frame.WhichOneof("frame") == "done") == [
        "a",
        "b",
    ]


async def test_rewards_log_under_the_trace_of_their_batch(serve: Any) -> None:
    seen: list[dict[str, Any]] = []

    @reward(description="Says under what it would log.")
    async def logging(items: list[Item]) -> list[float]:
        seen.append(structlog.contextvars.get_contextvars())
        return [0.0 for _ in items]

    talk = Conversation(await serve(logging))
    await talk.open("logging")
    traced, untraced, garbled = texts("a", "x"), texts("b", "x"), texts("c", "x")
    traced.traceparent, traced.step = f"00-{TRACE}-b7ad6b7169203331-01", 7
    garbled.traceparent = "\n<script>"
    await talk.send(traced, untraced, garbled)
    await talk.close()
    assert sorted(seen, key=lambda bound: str(bound["batch_id"])) == [
        {"batch_id": "a", "step": 7, "trace_id": TRACE},
        {"batch_id": "b", "step": 0, "trace_id": ""},
        {"batch_id": "c", "step": 0, "trace_id": ""},
    ]
    assert structlog.contextvars.get_contextvars() == {}
