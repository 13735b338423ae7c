"""What is told of a judge before anything is scored: by its settings, and when a session opens."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import KEY, SILENCE, Http, completion, error, scores

from plaudit.errors import FailedPreconditionError, UnavailableError

GOOD = scores(ready=1)


async def test_a_good_profile_is_asked_once_in_a_while(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    assert await asyncio.gather(*(room.wrong() for _ in range(5))) == [{}] * 5
    (call,) = endpoint.calls
    assert call.body["max_tokens"] == 16
    # with what the job will send, for some models take no temperature
    await room.wrong(temperature=0.5, seed=3)
    assert (endpoint.calls[1].body["temperature"], endpoint.calls[1].body["seed"]) == (0.5, 3)


async def test_any_answer_will_do(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(completion("Hello! I am", finish="length"))
    await room.open(endpoint.url)
    assert await room.wrong() == {}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error(401, f"Incorrect API key provided: {KEY}"), 'key "judge-key"'),
        (error(403, "no access"), 'key "judge-key"'),
        (error(404, "The model `judge-1` does not exist"), "its model"),
        (Http(404, b"<html>", {"content-type": "text/html"}), "base_url"),
        (Http(301, headers={"location": "https://elsewhere.example"}), "base_url"),
        (error(400, "Unsupported value: temperature"), "change temperature"),
        (error(429, "no quota", code="insufficient_quota"), "no quota"),
    ],
)
async def test_what_is_wrong_is_told_with_a_way_out(
    answer: Any, told: str, room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(answer)
    await room.open(endpoint.url)
    wrong = await room.wrong()
    assert list(wrong) == ["config.profile"]
    assert wrong["config.profile"].startswith(f'"main" (judge-1 at {endpoint.url}) cannot be used: HTTP ')
    assert told in wrong["config.profile"]
    assert KEY not in wrong["config.profile"]
    # a fault is not remembered
    endpoint.script = lambda *_: GOOD
    assert await room.wrong() == {}


async def test_an_address_where_nobody_answers_is_wrong_until_one_has(room: Any, serve_endpoint: Any) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        await room.open(url)
        wrong = await room.wrong()
    assert "no connection" in wrong["config.profile"]
    assert "look at its base_url" in wrong["config.profile"]

    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    assert await room.wrong() == {}
    url = endpoint.url
    await endpoint.__aexit__()
    await room.open(url)
    with pytest.raises(UnavailableError, match="no connection"):
        await room.wrong()


@pytest.mark.parametrize("trouble", [error(503, "loading"), SILENCE])
async def test_what_may_pass_is_no_fault_of_the_config(trouble: Any, room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(trouble)
    await room.open(endpoint.url, request_timeout_seconds=0.2)
    with pytest.raises(UnavailableError) as raised:
        await room.wrong()
    assert raised.value.retry_after


async def test_a_busy_endpoint_is_there(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(error(429))
    await room.open(endpoint.url)
    assert await room.wrong() == {}


async def test_a_model_that_takes_long_to_load_answers_the_next_check(room: Any, serve_endpoint: Any) -> None:
    is_loaded = asyncio.Event()

    async def answer() -> str:
        await is_loaded.wait()
        return GOOD

    endpoint = await serve_endpoint(script=lambda *_: answer())
    await room.open(endpoint.url)
    config = room.single.config.read(
        '{"profile": "main", "rubric": [{"name": "a", "description": "b"}]}', "config"
    )
    with pytest.raises(UnavailableError):
        await room.single.check(config, "config", 0.05)
    is_loaded.set()
    assert await room.single.check(config, "config", 10.0) == []
    assert len(endpoint.calls) == 1


async def test_what_does_not_go_together(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url, provider="anthropic")
    wrong = await room.wrong(seed=1, budget_cost=5.0)
    assert sorted(wrong) == ["config.budget_cost", "config.seed"]
    wrong = await room.wrong(profile="other")
    assert wrong == {"config.profile": '"other" is no judge of this reward server; there are main'}
    assert not endpoint.calls


async def test_a_missing_key_fails_the_start_by_its_name(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    with pytest.raises(
        FailedPreconditionError, match=r'judge profile main: credential "other-key" is missing'
    ):
        await room.open(endpoint.url, credential="other-key")


async def test_a_key_that_others_may_read_is_refused(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    Path(room.folder / "secrets" / "judge-key").chmod(0o644)
    with pytest.raises(FailedPreconditionError, match="chmod 600"):
        await room.open(endpoint.url)


async def test_a_key_may_come_from_the_environment(
    room: Any, serve_endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAUDIT_CREDENTIAL_OTHER_KEY", "sk-from-the-environment")
    # keys that the SDKs would look for are not ours to send
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-this-endpoint")
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url, credential="other-key")
    await room.wrong()
    await room.open(endpoint.url, credential=None)
    await room.wrong()
    sent = [call.headers["authorization"] for call in endpoint.calls]
    assert sent == ["Bearer sk-from-the-environment", "Bearer none"]
