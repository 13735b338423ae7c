"""What a reward itself finds wrong with a config: when a session opens, and in a call without completions."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from pydantic import BaseModel, ConfigDict
from score_conversation import Conversation, details_of, texts

from plaudit.errors import UnavailableError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from reward_service import FieldViolation, Item, reward
from reward_service.rewards import exact_answer, format_check

asked: list[str] = []


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: str = "good"
    limit: int = 1


async def check(config: Config) -> list[FieldViolation]:
    asked.append(config.mode)
    match config.mode:
        case "bad":
            return [FieldViolation("mode", '"bad" is refused; use "good"'), FieldViolation("", "is bad")]
        case "slow":
            await asyncio.sleep(60)
        case "broken":
            raise KeyError("mode")
        case "down":
            raise UnavailableError("the judge is down", retry_after=30.0)
        case "junk":
            return 3  # type: ignore[return-value]
    return []


@reward(name="checked", description="Always 1.", config=Config, check=check)
async def checked(item: Item[Config]) -> float:
    return 1.0


@pytest.fixture
async def channel(serve: Any) -> Any:
    asked.clear()
    return await serve(checked, format_check, exact_answer, check_timeout_seconds=0.5)


async def refusal(
    channel: grpc.aio.Channel, *selections: pb.RewardSelection, call: str
) -> grpc.aio.AioRpcError:
    """How opening a session, or a single call without completions, is refused."""
    if call == "once":
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await pb_grpc.RewardServiceStub(channel).ScoreOnce(
                pb.ScoreOnceRequest(rewards=selections), timeout=20
            )
        return error.value
    talk = Conversation(channel)
    opening = pb.SessionOpen(session_id=talk.session_id, protocol_version=1, rewards=selections)
    await talk.call.write(pb.ScoreRequest(open=opening))
    return await talk.ending()


def selection(key: str, name: str, config_json: str) -> pb.RewardSelection:
    return pb.RewardSelection(key=key, name=name, config_json=config_json)


@pytest.mark.parametrize("call", ["session", "once"])
async def test_everything_wrong_is_told_at_once(channel: grpc.aio.Channel, call: str) -> None:
    error = await refusal(
        channel,
        selection("a", "checked", '{"mode": "bad"}'),
        selection("b", "checked", '{"limit": "x"}'),
        selection("c", "format_check", '{"pattern": "("}'),
        selection("d", "exact_answer", '{"extract": "regex", "pattern": "(?=a)(b)"}'),
        selection("e", "checked", '{"mode": "down"}'),
        call=call,
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    violations = details_of(error)["violations"]
    assert set(violations) == {
        "rewards[0].config.mode",
        "rewards[0].config",
        "rewards[1].config.limit",
        "rewards[2].config.pattern",
        "rewards[3].config.pattern",
    }
    assert violations["rewards[0].config.mode"] == '"bad" is refused; use "good"'
    assert "missing )" in violations["rewards[2].config.pattern"]
    assert "look-around" in violations["rewards[3].config.pattern"]


@pytest.mark.parametrize("call", ["session", "once"])
@pytest.mark.parametrize(
    ("mode", "told", "retry_delay"),
    [
        ("slow", "did not end within 0.5 s", 5.0),
        ("broken", "raised KeyError (test_config_check.py:", 5.0),
        ("junk", "raised TypeError", 5.0),
        ("down", "the judge is down", 30.0),
    ],
)
async def test_a_check_that_cannot_tell_is_no_bad_config(
    channel: grpc.aio.Channel, call: str, mode: str, told: str, retry_delay: float
) -> None:
    error = await refusal(channel, selection("a", "checked", f'{{"mode": "{mode}"}}'), call=call)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert told in (error.details() or "")
    assert (error.details() or "").count("cannot check its config") == 1
    assert details_of(error) == {"reason": "CONFIG_UNCHECKED", "retry_delay": retry_delay}


async def test_good_configs_are_answered_without_results(channel: grpc.aio.Channel) -> None:
    response = await pb_grpc.RewardServiceStub(channel).ScoreOnce(
        pb.ScoreOnceRequest(
            rewards=[selection("a", "checked", "{}"), selection("c", "format_check", '{"pattern": "a"}')],
            batch=pb.Batch(batch_id="b"),
        ),
        timeout=20,
    )
    assert not response.results
    assert asked == ["good"]


async def test_a_session_that_comes_back_is_not_checked_again(channel: grpc.aio.Channel) -> None:
    first = Conversation(channel)
    await first.open("checked")
    second = Conversation(channel, first.session_id)
    await second.open("checked")
    assert asked == ["good"]
    third = Conversation(channel, first.session_id)
    await third.open("checked", checked='{"limit": 2}')
    assert asked == ["good", "good"]
    await third.send(texts("x", "a"))
    assert (await third.until("x")).values("x") == {"0": 1.0}
