"""What becomes of each answer of a judge: the outcome, and how many calls were made for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from scripted_endpoint import CUT, SILENCE, Http, completion, error, scores

from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored

GOOD = scores(clarity=0.75)


async def test_a_verdict_is_the_weighted_mean_with_its_rationale_and_what_it_took(
    room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(scores("Mostly right.", clarity=4, truth=0.5))
    await room.open(endpoint.url, input_price=2.0, output_price=10.0)
    rubric = [
        {"name": "clarity", "description": "Clear?", "weight": 3.0, "min_score": 1, "max_score": 5},
        {"name": "truth", "description": "True?", "weight": 1.0},
    ]
    (outcome,) = await room.judge("Because of Rayleigh scattering.", rubric=rubric)
    # (3 * (4 - 1) / (5 - 1) + 1 * 0.5) / 4
    assert outcome == Scored(
        0.6875,
        {
            "criterion/clarity": 4.0,
            "criterion/truth": 0.5,
            "tokens": 120.0,
            "cost": pytest.approx((100 * 2.0 + 20 * 10.0) / 1e6),
            "calls": 1.0,
            "cached": 0.0,
        },
        "Mostly right.",
    )
    (call,) = endpoint.calls
    assert call.path == "/v1/chat/completions"
    assert call.headers["authorization"] == "Bearer sk-very-secret-0123456789"
    assert call.body["model"] == "judge-1"
    assert (call.body["temperature"], call.body["max_tokens"]) == (0.0, 1024)
    assert "seed" not in call.body
    schema = call.body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["scores"]["required"] == ["clarity", "truth"]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (f"Let me think. 9/10 I would say {{roughly}}.\n```json\n{GOOD}\n```\nI hope this helps!", 0.75),
        (f"{scores(clarity=0.1)} On reflection: {GOOD}", 0.75),
        (scores("Not excellent: 10/10 would be better.", clarity=0), 0.0),
        (json.dumps({"rationale": "", "scores": {"clarity": 1}, "confidence": 0.2}), 1.0),
        (f'{{"clarity": 0.1}} {GOOD}', 0.75),
        (scores('The answer says {"rationale": "", "scores": {"clarity": 1}}', clarity=0.25), 0.25),
    ],
    ids=[
        "prose around",
        "two objects",
        "numbers in prose",
        "more keys",
        "object without keys",
        "quoted object",
    ],
)
async def test_the_last_whole_object_with_the_keys_is_the_verdict(
    answer: str, value: float, room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(answer)
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Scored)
    assert outcome.value == value
    assert len(endpoint.calls) == 1


NO_VERDICTS = {
    "7 where 0 to 1 was asked": scores(clarity=7),
    "below the scale": scores(clarity=-0.001),
    "text for a number": scores(clarity="0.8"),
    "text that begins like a number": scores(clarity="0.8x"),
    "truth value": scores(clarity=True),
    "null": scores(clarity=None),
    "NaN": scores(clarity=float("nan")),
    "infinity": '{"rationale": "", "scores": {"clarity": 1e999}}',
    "criterion missing": scores(truth=0.5),
    "criterion too many": scores(clarity=0.5, truth=0.5),
    "rationale missing": json.dumps({"scores": {"clarity": 0.5}}),
    "rationale no text": json.dumps({"rationale": 5, "scores": {"clarity": 0.5}}),
    "scores no object": json.dumps({"rationale": "", "scores": 0.5}),
    "prose alone": "There are 5 reasons why this is a 9/10. Score: 0.9",
    "good one, then one out of range": f"{GOOD} No: {scores(clarity=7)}",
    "half an answer": GOOD[:-4],
    "good one, then half of another": f"{GOOD} No: {GOOD[:-4]}",
    "object within half of another": '{"draft": ' + GOOD + ', "rationale": "on second th',
    "wrapped": json.dumps({"verdict": json.loads(GOOD)}),
    "name twice": '{"rationale": "", "scores": {"clarity": 0.1, "clarity": 0.9}}',
    "huge number": '{"rationale": "", "scores": {"clarity": ' + "9" * 5000 + "}}",
    "nested deep": '{"a":' * 50_000,
    "braces": "{" * 60_000,
    "list": f"[{scores(clarity=2)}]",
    "empty": "",
    "blank": " \n",
    "no content": completion(None),
    "cut off by length": completion(GOOD, finish="length"),
    "not its API": Http(body=b'{"ok": true}'),
    "no JSON": Http(body=b"<html>Log in</html>", headers={"content-type": "text/html"}),
}


@pytest.mark.parametrize("answer", NO_VERDICTS.values(), ids=NO_VERDICTS.keys())
async def test_no_verdict_is_asked_for_once_more_and_then_fails(
    answer: Any, room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(answer)
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.INTERNAL  # not retried by a client: the one repeat was ours
    assert outcome.retry_delay is None
    assert "no verdict in 2 answers" in outcome.message
    assert len(endpoint.calls) == 2
    assert "An earlier answer of yours was refused" in endpoint.calls[1].user
    # nothing of it was kept
    await room.judge("text")
    assert len(endpoint.calls) == 4


async def test_the_repeat_may_bring_the_verdict(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(scores(clarity=7), GOOD)
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Scored)
    assert (outcome.value, outcome.metrics["calls"], outcome.metrics["tokens"]) == (0.75, 2.0, 240.0)
    assert '"clarity" is 7 where a number from 0 to 1 was asked for' in endpoint.calls[1].user


@pytest.mark.parametrize(
    "answer",
    [completion(None, refusal="I cannot judge this."), completion(GOOD, finish="content_filter")],
    ids=["refusal", "content filter"],
)
async def test_a_judge_that_refuses_is_not_asked_again(answer: Any, room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(answer)
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.INVALID
    assert len(endpoint.calls) == 1


@pytest.mark.parametrize(
    "trouble",
    [error(500), error(503), error(529), error(429, retry_after="0.05"), error(408), CUT],
    ids=["500", "503", "529", "429", "408", "connection cut"],
)
async def test_what_may_pass_is_repeated(trouble: Any, room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(trouble, trouble, GOOD)
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Scored)
    assert outcome.value == 0.75
    assert len(endpoint.calls) == 3


async def test_a_pause_that_does_not_fit_into_the_time_ends_the_item_at_once(
    room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(error(429, "slow down", retry_after="40"))
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text", seconds=30.0)
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retry_delay) == (FailureCode.UNAVAILABLE, 40.0)
    assert "HTTP 429: slow down" in outcome.message
    assert len(endpoint.calls) == 1


async def test_silence_ends_within_the_time_of_the_batch(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(SILENCE)
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text", seconds=0.5)
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.TIMEOUT
    assert "it waited for the endpoint's answer" in outcome.message
    assert len(endpoint.calls) == 1


async def test_silence_at_every_call_is_a_timeout(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(SILENCE)
    await room.open(endpoint.url, request_timeout_seconds=0.1)
    (outcome,) = await room.judge("text", seconds=0.5)
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.TIMEOUT


async def test_a_redirect_is_told_with_its_target(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(Http(307, headers={"location": "http://127.0.0.1:1/elsewhere"}))
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Failed)
    assert 'HTTP 307, a redirect to "http://127.0.0.1:1/elsewhere"; redirects are not followed' in (
        outcome.message
    )


async def test_silence_is_cut_short_by_the_timeout_of_a_request(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(SILENCE, GOOD)
    await room.open(endpoint.url, request_timeout_seconds=0.2)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Scored)
    assert len(endpoint.calls) == 2


async def test_an_endpoint_that_stays_down_is_unavailable(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(error(500, "boom"))
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text", seconds=0.5)
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.UNAVAILABLE
    assert outcome.retry_delay is not None
    assert "HTTP 500: boom" in outcome.message
    assert len(endpoint.calls) >= 2


async def test_an_endpoint_that_fails_in_a_row_is_left_alone(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(error(500, "boom"))
    await room.open(endpoint.url, breaker_failures=3, breaker_seconds=60.0, concurrency=1)
    outcomes = await room.judge(*(f"text {n}" for n in range(20)))
    assert len(endpoint.calls) == 3
    for outcome in outcomes:
        assert isinstance(outcome, Failed)
        assert outcome.code is FailureCode.UNAVAILABLE
        assert outcome.retry_delay is not None
        assert 0 < outcome.retry_delay <= 60.0


async def test_after_its_rest_the_endpoint_is_asked_again(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(error(500), GOOD)
    await room.open(endpoint.url, breaker_failures=1, breaker_seconds=0.05)
    (outcome,) = await room.judge("text")
    while isinstance(outcome, Failed):  # the rest is not over
        assert outcome.code is FailureCode.UNAVAILABLE
        await asyncio.sleep(0.01)
        (outcome,) = await room.judge("text")
    assert isinstance(outcome, Scored)
    assert len(endpoint.calls) == 2


@pytest.mark.parametrize(
    "answer",
    [
        error(401, "Incorrect API key provided: sk-very-secret-0123456789"),
        error(402, "no credit"),
        error(403),
        error(404, "The model judge-1 does not exist"),
        error(429, "You exceeded your quota", code="insufficient_quota"),
        Http(302, headers={"location": "http://127.0.0.1:1/elsewhere"}),
    ],
    ids=["401", "402", "403", "404", "quota", "redirect"],
)
async def test_what_a_person_must_mend_pauses_the_job(answer: Any, room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD, answer)
    await room.open(endpoint.url, concurrency=1)
    await room.judge("while all is well")
    outcomes = await room.judge(*(f"text {n}" for n in range(20)))
    for outcome in outcomes:
        assert isinstance(outcome, Failed)
        assert outcome.code is FailureCode.EXHAUSTED
        assert outcome.retry_delay is None
        assert "judge main (judge-1 at " in outcome.message
        assert "HTTP" in outcome.message
        assert "sk-very-secret" not in outcome.message
    assert len(endpoint.calls) == 2  # one told us; the others were not sent


async def test_a_key_that_is_mended_is_read_anew(room: Any, serve_endpoint: Any) -> None:
    def script(call: Any, _: int) -> Any:
        return GOOD if call.headers["authorization"] == "Bearer sk-new-key-99" else error(401, "wrong key")

    endpoint = await serve_endpoint(script=script)
    await room.open(endpoint.url, breaker_seconds=0.01)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Failed)
    room.write_key("sk-new-key-99")
    while isinstance(outcome, Failed):  # the rest is not over
        await asyncio.sleep(0.005)
        (outcome,) = await room.judge("text")
    assert isinstance(outcome, Scored)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_request_that_will_not_do_is_not_repeated(
    status: int, room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(error(status, "maximum context length is 4096 tokens"))
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.INVALID
    assert "maximum context length" in outcome.message
    assert len(endpoint.calls) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Http(body=b" " * (5 * 1024 * 1024)),
        Http(body=b"\x1f\x8b packed", headers={"content-encoding": "gzip"}),
    ],
    ids=["endless", "packed"],
)
async def test_an_answer_beyond_all_bounds_is_a_fault_of_the_endpoint(
    answer: Any, room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(answer)
    await room.open(endpoint.url, breaker_failures=1)
    (outcome,) = await room.judge("text")
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.UNAVAILABLE


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -5, "completion_tokens": "many"}, (10**12, 1)])
async def test_usage_that_cannot_be_is_estimated(usage: Any, room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(completion(GOOD, usage=usage))
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text", max_tokens=100)
    assert isinstance(outcome, Scored)
    sent = len(endpoint.calls[0].system) + len(endpoint.calls[0].user)
    assert 100 < outcome.metrics["tokens"] < 100 + sent


async def test_what_is_sent_follows_the_profile_and_the_config(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(
        endpoint.url, verdict_format="prompt", token_limit_field="max_completion_tokens", credential=None
    )
    (outcome,) = await room.judge(
        "text",
        temperature=None,
        seed=7,
        max_tokens=99,
        instructions="Pupils of ten.",
        reference_column="answer",
        columns={"answer": {"why": "scattering"}},
    )
    assert isinstance(outcome, Scored)
    (call,) = endpoint.calls
    assert "response_format" not in call.body
    assert "temperature" not in call.body
    assert (call.body["seed"], call.body["max_completion_tokens"]) == (7, 99)
    assert "Pupils of ten." in call.system
    assert '{"why": "scattering"}' in call.user
    assert "Why is the sky blue?" in call.user
    assert "- clarity, from 0 (worst) to 1 (best): Is it clear?" in call.system


async def test_a_row_without_a_reference_is_not_applicable(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text", reference_column="answer", columns={"answer": None})
    assert outcome == NotApplicable("column answer of the row is null")
    assert not endpoint.calls


async def test_anthropic_is_spoken_too(room: Any, serve_endpoint: Any) -> None:
    def message(text: str, stop: str = "end_turn") -> Http:
        body = {
            "type": "message",
            "content": [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": text}],
            "stop_reason": stop,
            "usage": {"input_tokens": 70, "cache_read_input_tokens": 30, "output_tokens": 20},
        }
        return Http(body=json.dumps(body).encode())

    endpoint = await serve_endpoint(
        message(GOOD),
        message("", "refusal"),
        message(GOOD, "max_tokens"),
        message("no"),
        error(529),
        error(401),
    )
    await room.open(endpoint.url.removesuffix("/v1"), provider="anthropic")
    (outcome,) = await room.judge("first")
    assert isinstance(outcome, Scored)
    assert (outcome.value, outcome.metrics["tokens"]) == (0.75, 120.0)
    call = endpoint.calls[0]
    assert call.path == "/v1/messages"
    assert [value for value in call.headers.values() if "sk-very-secret-0123456789" in value] == [
        "Bearer sk-very-secret-0123456789"
    ]
    assert call.body["output_config"]["format"]["type"] == "json_schema"
    codes = []
    for text in ("refused", "cut, then prose", "overloaded, then the key"):
        (failed,) = await room.judge(text)
        assert isinstance(failed, Failed)
        codes.append(failed.code)
    assert codes == [FailureCode.INVALID, FailureCode.INTERNAL, FailureCode.EXHAUSTED]
    assert len(endpoint.calls) == 6
