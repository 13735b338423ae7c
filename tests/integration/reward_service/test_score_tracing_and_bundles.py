"""What a client may ask for besides: dones that travel with results, and a trace to log under."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from score_conversation import Conversation, texts

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.types.scoring import Failed, FailureCode, Scored
from reward_service import Item, reward

TRACE = "0af7651916cd43dd8448eb211c80319c"


@reward(description="Length of the text.", min_value=0)
async def length(items: list[Item]) -> list[float]:
    return [float(len(item.text)) for item in items]


async def opened(
    channel: Any, *, bundled: bool = False, plain: bool = False, name: str = "length"
) -> Conversation:
    talk = Conversation(channel)
    selection = pb.RewardSelection(key="k", name=name)
    await talk.open_with(
        pb.SessionOpen(
            session_id=talk.session_id,
            protocol_version=1,
            rewards=[selection],
            reads_bundled_done=bundled,
            reads_plain_scores=plain,
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


async def test_plain_scores_travel_together_where_the_client_reads_them(serve: Any) -> None:
    talk = await opened(await serve(length), plain=True)
    await talk.send(texts("a", *["x" * n for n in range(600)]), texts("b", "yy"))
    frames = await frames_of(talk)
    assert not any(frame.results.results for frame in frames)
    blocks = [block for frame in frames for block in frame.results.plain_scores]
    assert {block.reward_key for block in blocks} == {"k"}
    assert max(len(block.completion_ids) for block in blocks) > 1
    values = {
        (block.batch_id, completion_id): value
        for block in blocks
        for completion_id, value in zip(block.completion_ids, block.values, strict=True)
    }
    batches = {"a": texts("a", *["x" * n for n in range(600)]), "b": texts("b", "yy")}
    assert values == {
        (batch_id, c.completion_id): float(len(c.text))
        for batch_id, batch in batches.items()
        for group in batch.groups
        for c in group.completions
    }


async def test_every_other_client_gets_a_result_for_each_score(serve: Any) -> None:
    talk = await opened(await serve(length))
    await talk.send(texts("a", "x", "xx"))
    frames = await frames_of(talk)
    assert not any(frame.results.plain_scores for frame in frames)
    assert sorted(r.score.value for frame in frames for r in frame.results.results) == [1.0, 2.0]


@pytest.mark.parametrize(
    "answer",
    [Scored(1.0, {"part": 0.5}), Scored(1.0, explanation="why"), None, Failed(FailureCode.INVALID, "no")],
)
async def test_what_has_more_to_it_than_a_value_is_a_result(serve: Any, answer: Any) -> None:
    @reward(name="mixed", description="The first is plain.")
    async def mixed(items: list[Item]) -> list[Any]:
        return [0.0, *([answer] * (len(items) - 1))]

    talk = await opened(await serve(mixed), plain=True, name="mixed")
    await talk.send(texts("a", "x", "y"))
    frames = await frames_of(talk)
    assert not any(frame.results.plain_scores for frame in frames)
    first, second = [r for frame in frames for r in frame.results.results]
    assert (first.WhichOneof("outcome"), first.score.value) == ("score", 0.0)
    expected = {Scored: "score", Failed: "failure", type(None): "not_applicable"}[type(answer)]
    assert second.WhichOneof("outcome") == expected
    assert dict(second.score.metrics) == (dict(answer.metrics) if isinstance(answer, Scored) else {})


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
