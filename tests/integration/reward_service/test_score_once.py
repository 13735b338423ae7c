"""ScoreOnce: one batch in one call, under the call's own deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from score_conversation import batch, details_of, eventually, group, texts

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from reward_service import Item, reward

LENGTH = pb.RewardSelection(key="l", name="length")
SLOW = pb.RewardSelection(key="s", name="slow")

cancelled: list[str] = []


@reward(name="length", description="Number of characters.", required_columns=["answer"])
async def length(items: list[Item]) -> list[float]:
    return [float(len(item.text)) for item in items]


@reward(name="slow", description="Takes long.")
async def slow(item: Item) -> float:
    try:
        await asyncio.sleep(60 if item.text == "slow" else 0)
    except asyncio.CancelledError:
        cancelled.append(item.text)
        raise
    return 1.0


@pytest.fixture
async def stub(serve: Any) -> Any:
    """A stub of a server that takes two calls at once."""
    cancelled.clear()
    return pb_grpc.RewardServiceStub(await serve(length, slow, max_batch_completions=3, max_sessions=2))


def outcomes(response: pb.ScoreOnceResponse) -> dict[tuple[str, str], str]:
    return {(r.completion_id, r.reward_key): r.WhichOneof("outcome") or "" for r in response.results}


async def test_one_call(stub: Any) -> None:
    sent = batch("a", group(["x", "yy"], answer=1), group(["z"], 2))
    response = await stub.ScoreOnce(pb.ScoreOnceRequest(rewards=[LENGTH, SLOW], batch=sent), timeout=10)
    assert outcomes(response) == {
        ("0", "l"): "score",
        ("1", "l"): "score",
        ("2", "l"): "failure",
        ("0", "s"): "score",
        ("1", "s"): "score",
        ("2", "s"): "score",
    }
    values = {r.completion_id: r.score.value for r in response.results if r.reward_key == "l"}
    assert values == {"0": 1.0, "1": 2.0, "2": 0.0}


async def test_what_is_open_when_the_deadline_comes_near_ends_as_timeout(stub: Any) -> None:
    # Batch.timeout is ignored.
    request = pb.ScoreOnceRequest(rewards=[SLOW], batch=texts("a", "quick", "slow", timeout=0.0))
    response = await stub.ScoreOnce(request, timeout=3.0)
    found = {r.completion_id: r for r in response.results}
    assert found["0"].score.value == 1.0
    assert found["1"].failure.code == pb.Failure.CODE_TIMEOUT
    assert cancelled == ["slow"]


async def test_everything_wrong_is_named_at_once(stub: Any) -> None:
    rewards = [
        pb.RewardSelection(key="l", name="nobody"),
        pb.RewardSelection(name="slow", config_json='{"a": 1}'),
    ]
    sent = batch("", group([]), keys=["other"])
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.ScoreOnce(pb.ScoreOnceRequest(rewards=rewards, batch=sent), timeout=10)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert set(details_of(error.value)["violations"]) == {
        "rewards[0].name",
        "rewards[1].key",
        "rewards[1].config.a",
        "batch.batch_id",
        "batch.groups[0].completions",
        "batch.reward_keys[0]",
    }


async def test_a_batch_above_the_limit_is_refused(stub: Any) -> None:
    request = pb.ScoreOnceRequest(rewards=[SLOW], batch=texts("a", *"abcd"))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.ScoreOnce(request, timeout=10)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details_of(error.value)["reason"] == "BATCH_TOO_LARGE"


async def test_a_call_that_was_accepted_is_served_when_the_server_stops(serve: Any) -> None:
    stub = pb_grpc.RewardServiceStub(await serve(slow))
    call = stub.ScoreOnce(pb.ScoreOnceRequest(rewards=[SLOW], batch=texts("a", "slow")), timeout=3.0)
    await eventually(lambda: serve.last.engine._single_calls)
    await serve.last.stop(10.0)
    (result,) = (await call).results
    assert result.failure.code == pb.Failure.CODE_TIMEOUT


async def test_too_many_calls_are_refused_and_a_cancelled_one_makes_room(stub: Any, serve: Any) -> None:
    request = pb.ScoreOnceRequest(rewards=[SLOW], batch=texts("a", "slow"))
    calls = [stub.ScoreOnce(request, timeout=30) for _ in range(2)]
    await eventually(lambda: serve.last.engine._single_calls == 2)
    quick = pb.ScoreOnceRequest(rewards=[SLOW], batch=texts("b", "quick"))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.ScoreOnce(quick, timeout=10)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details_of(error.value)["reason"] == "TOO_MANY_CALLS"
    assert details_of(error.value)["retry_delay"] > 0
    for call in calls:
        call.cancel()
    await eventually(lambda: cancelled == ["slow", "slow"])
    response = await stub.ScoreOnce(quick, timeout=10)
    assert len(response.results) == 1
