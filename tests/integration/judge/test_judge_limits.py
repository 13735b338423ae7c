"""Cache, concurrency, limits and budgets of a judge: what is asked how often, and what is never asked."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest
from scripted_endpoint import KEY, SILENCE, completion, error, scores

from plaudit.errors import FailedPreconditionError
from plaudit.types.scoring import Failed, FailureCode, Scored

GOOD = scores(clarity=0.75)


async def test_identical_completions_are_asked_once(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    outcomes = await room.judge(*["same"] * 8, "other")
    assert [o.value for o in outcomes] == [0.75] * 9
    assert len(endpoint.calls) == 2
    # what was paid is counted once
    assert sum(o.metrics["tokens"] for o in outcomes) == 240
    assert sorted(o.metrics["cached"] for o in outcomes) == [0.0, 0.0] + [1.0] * 7


async def test_verdicts_outlive_the_server(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    await room.judge("one", "two")
    await room.open(endpoint.url)
    outcomes = await room.judge("one", "two", "three")
    assert len(endpoint.calls) == 3
    assert [o.metrics["cached"] for o in outcomes] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.5},
        {"seed": 1},
        {"max_tokens": 2000},
        {"instructions": "Be kind."},
        {"rubric": [{"name": "clarity", "description": "Is it very clear?"}]},
        {"rubric": [{"name": "clarity", "description": "Is it clear?", "max_score": 2}]},
        {"reference_column": "answer", "columns": {"answer": "scattering"}},
    ],
)
async def test_what_is_asked_otherwise_is_another_question(
    change: dict[str, Any], room: Any, serve_endpoint: Any
) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    await room.judge("text")
    await room.judge("text", **change)
    assert len(endpoint.calls) == 2
    # weights are applied here, and ask nothing new
    await room.judge("text", rubric=[{"name": "clarity", "description": "Is it clear?", "weight": 5.0}])
    assert len(endpoint.calls) == 2


async def test_another_model_is_asked_anew(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    for profile in ({}, {"model": "judge-2"}, {"verdict_format": "prompt"}, {"concurrency": 3}):
        await room.open(endpoint.url, **profile)
        await room.judge("text")
    assert len(endpoint.calls) == 3


async def test_the_cache_is_bounded(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url, cache_max_verdicts=10)
    for n in range(25):
        await room.judge(f"text {n}")
    await room.close()
    with sqlite3.connect(room.folder / "reward" / "judge-verdicts.sqlite3") as connection:
        (count,) = connection.execute("SELECT count(*) FROM verdicts").fetchone()
    assert count == 10
    await room.open(endpoint.url, cache_max_verdicts=10)
    (newest,) = await room.judge("text 24")
    (oldest,) = await room.judge("text 0")
    assert (newest.metrics["cached"], oldest.metrics["cached"]) == (1.0, 0.0)


async def test_a_cache_that_cannot_be_read_is_set_aside(
    room: Any, serve_endpoint: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    await room.judge("text")
    await room.close()
    path = room.folder / "reward" / "judge-verdicts.sqlite3"
    path.write_bytes(b"this is no database" * 1000)
    await room.open(endpoint.url)
    for _ in range(2):
        (outcome,) = await room.judge("text")
        assert isinstance(outcome, Scored)
    assert len(endpoint.calls) == 2  # once anew
    assert [p.name for p in path.parent.glob("*.unreadable-*")]
    out, err = capfd.readouterr()
    assert "set aside" in out + err


async def test_a_cache_that_breaks_while_it_is_used_is_set_aside(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    await room.judge(*(f"text {n}" for n in range(200)))
    await room.close()
    path = room.folder / "reward" / "judge-verdicts.sqlite3"
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    await room.open(endpoint.url)
    outcomes = await room.judge(*(f"text {n}" for n in range(200)))
    assert all(isinstance(outcome, Scored) for outcome in outcomes)
    outcomes = await room.judge(*(f"text {n}" for n in range(200)))
    assert {o.metrics["cached"] for o in outcomes} == {1.0}


async def test_a_verdict_that_was_tampered_with_is_not_taken(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    await room.judge("text")
    await room.close()
    with sqlite3.connect(room.folder / "reward" / "judge-verdicts.sqlite3") as connection:
        connection.execute("UPDATE verdicts SET verdict = ?", (scores(clarity=7),))
    await room.open(endpoint.url)
    (outcome,) = await room.judge("text")
    assert outcome.value == 0.75
    assert len(endpoint.calls) == 2


async def test_no_more_calls_at_once_than_the_profile_says(room: Any, serve_endpoint: Any) -> None:
    async def slow() -> str:
        await asyncio.sleep(0.01)
        return GOOD

    endpoint = await serve_endpoint(script=lambda *_: slow())
    await room.open(endpoint.url, concurrency=3)
    outcomes = await room.judge(*(f"text {n}" for n in range(30)))
    assert all(isinstance(outcome, Scored) for outcome in outcomes)
    assert endpoint.most_under_way == 3


async def some_done(tasks: list[asyncio.Task[Any]], count: int) -> None:
    """Waits until so many tasks are done, and then for a moment, in which others might go on."""
    while sum(task.done() for task in tasks) < count:
        await asyncio.wait([task for task in tasks if not task.done()], return_when="FIRST_COMPLETED")
    await asyncio.sleep(0.1)


async def test_requests_beyond_the_minute_wait(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url, requests_per_minute=5)
    tasks = [asyncio.create_task(room.judge(f"text {n}")) for n in range(7)]
    await some_done(tasks, 5)
    assert len(endpoint.calls) == 5
    (waited,) = await room.judge("more", seconds=0.1)
    assert waited.code is FailureCode.TIMEOUT
    assert "limits per minute" in waited.message
    for task in tasks:
        task.cancel()


async def test_tokens_are_counted_by_what_calls_really_took(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(completion(GOOD, usage=(2900, 100)))
    await room.open(endpoint.url, tokens_per_minute=10_000, concurrency=1)
    tasks = [asyncio.create_task(room.judge(f"text {n}")) for n in range(20)]
    await some_done(tasks, 3)
    # 3 took 3000 each, and no call is thought to take 1000 or less, as its max_tokens are more
    assert len(endpoint.calls) == 3
    for task in tasks:
        task.cancel()


async def test_what_was_estimated_too_high_is_given_back(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(completion(GOOD, usage=(100, 20)))
    await room.open(endpoint.url, tokens_per_minute=10_000, concurrency=1)
    # by their estimates, of more than 1024 each, nine would be too many
    outcomes = await room.judge(*(f"text {n}" for n in range(20)))
    assert all(isinstance(outcome, Scored) for outcome in outcomes)


async def test_a_pause_holds_up_all_calls_of_the_profile(room: Any, serve_endpoint: Any) -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []

    def script(_: Any, number: int) -> Any:
        times.append(loop.time())
        return error(429, retry_after="0.3") if number == 0 else GOOD

    endpoint = await serve_endpoint(script=script)
    await room.open(endpoint.url, concurrency=1)
    outcomes = await room.judge(*(f"text {n}" for n in range(5)))
    assert all(isinstance(outcome, Scored) for outcome in outcomes)
    assert len(times) == 6
    assert times[1] - times[0] >= 0.29


async def test_who_cannot_wait_for_the_end_of_a_pause_is_told_so(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(error(429, retry_after="40"))
    await room.open(endpoint.url, concurrency=1)
    outcomes = await room.judge(*(f"text {n}" for n in range(5)))
    assert [outcome.code for outcome in outcomes] == [FailureCode.UNAVAILABLE] * 5
    assert all(30 < outcome.retry_delay <= 40 for outcome in outcomes)
    assert "it asked for a pause" in outcomes[-1].message
    assert len(endpoint.calls) == 1


async def test_who_gives_up_does_not_take_the_answer_from_others(room: Any, serve_endpoint: Any) -> None:
    may_answer = asyncio.Event()

    async def answer() -> str:
        await may_answer.wait()
        return GOOD

    endpoint = await serve_endpoint(script=lambda *_: answer())
    await room.open(endpoint.url)
    first = asyncio.create_task(room.judge("same"))
    second = asyncio.create_task(room.judge("same"))
    await endpoint.came.wait()
    first.cancel()
    may_answer.set()
    (outcome,) = await second
    assert isinstance(outcome, Scored)
    assert len(endpoint.calls) == 1


async def test_a_question_that_nobody_waits_for_is_given_up(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(SILENCE, GOOD)
    await room.open(endpoint.url, concurrency=1)
    first = asyncio.create_task(room.judge("text"))
    await endpoint.came.wait()
    first.cancel()
    (outcome,) = await room.judge("other")  # has the only slot
    assert isinstance(outcome, Scored)


async def test_a_budget_in_tokens_is_never_passed(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(completion(GOOD, usage=(100, 20)))
    await room.open(endpoint.url)
    outcomes = await room.judge(*(f"text {n}" for n in range(200)), budget_tokens=12_000, max_tokens=100)
    spent = sum(o.metrics["tokens"] for o in outcomes if isinstance(o, Scored))
    failed = [o for o in outcomes if isinstance(o, Failed)]
    assert spent <= 12_000
    # and used up, but for one call at its highest estimate
    sent = len(endpoint.calls[0].system) + len(endpoint.calls[0].user)
    assert spent > 12_000 - (100 + sent)
    assert {o.code for o in failed} == {FailureCode.EXHAUSTED}
    assert "budget_tokens of 12000" in failed[0].message
    assert len(endpoint.calls) == spent / 120
    # of this job alone
    (other,) = await room.judge("another text", job_id="job-2", budget_tokens=12_000, max_tokens=100)
    assert isinstance(other, Scored)
    # a verdict that is known costs nothing
    (known,) = await room.judge("another text", budget_tokens=12_000, max_tokens=100)
    assert isinstance(known, Scored)


async def test_a_budget_in_money_outlives_the_server(room: Any, serve_endpoint: Any) -> None:
    # 100 tokens read at 1000 and 20 written at 5000 a million: 0.2 a call
    endpoint = await serve_endpoint(completion(GOOD, usage=(100, 20)))
    prices = {"input_price": 1000.0, "output_price": 5000.0, "concurrency": 1}
    budget = {"budget_cost": 6.0, "max_tokens": 20}
    await room.open(endpoint.url, **prices)
    assert all(isinstance(o, Scored) for o in await room.judge(*(f"a {n}" for n in range(12)), **budget))
    await room.open(endpoint.url, **prices)
    outcomes = await room.judge(*(f"b {n}" for n in range(50)), **budget)
    scored = sum(isinstance(o, Scored) for o in outcomes)
    assert (12 + scored) * 0.2 <= 6.0
    assert scored >= 10
    assert "budget_cost of 6" in next(o.message for o in outcomes if isinstance(o, Failed))
    (outcome,) = await room.judge("c", **budget | {"budget_cost": 10.0})
    assert isinstance(outcome, Scored)


async def test_a_call_that_may_have_cost_counts(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(SILENCE)
    await room.open(endpoint.url)
    for n in range(12):
        (outcome,) = await room.judge(f"text {n}", seconds=0.1, budget_tokens=12_000, max_tokens=1000)
        if outcome.code is FailureCode.EXHAUSTED:
            break
    assert outcome.code is FailureCode.EXHAUSTED
    assert len(endpoint.calls) <= 11


async def test_budgets_that_cannot_be_read_are_not_begun_anew(room: Any, serve_endpoint: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    await room.close()
    (room.folder / "reward" / "judge-budgets.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(FailedPreconditionError, match="what jobs have spent is not known"):
        await room.open(endpoint.url)


async def test_a_key_that_the_endpoint_repeats_is_kept_nowhere(
    room: Any, serve_endpoint: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def script(call: Any, number: int) -> Any:
        said = f"You sent {call.headers['authorization']}"
        return [
            completion(scores(said, clarity=0.5)),
            error(400, said),
            error(500, said),
            completion(scores(clarity=said)),
            completion(scores(clarity=said)),
            error(401, said),
        ][min(number, 5)]

    endpoint = await serve_endpoint(script=script)
    await room.open(endpoint.url)
    outcomes = [outcome for n in range(4) for outcome in await room.judge(f"text {n}")]
    assert isinstance(outcomes[0], Scored)
    assert outcomes[0].explanation == "You sent Bearer [key]"
    assert [getattr(o, "code", None) for o in outcomes[1:]] == [
        FailureCode.INVALID,
        FailureCode.INTERNAL,
        FailureCode.EXHAUSTED,
    ]
    assert len(endpoint.calls) == 6
    assert KEY not in repr(outcomes)
    assert KEY not in repr(vars(room.single)) + repr(vars(room))
    await room.close()
    for path in (room.folder / "reward").rglob("*"):
        assert KEY.encode() not in path.read_bytes()
    out, err = capfd.readouterr()
    assert KEY not in out + err


async def test_one_server_at_a_time_owns_the_files(room: Any, serve_endpoint: Any, tmp_path: Any) -> None:
    endpoint = await serve_endpoint(GOOD)
    await room.open(endpoint.url)
    from reward_service.judge import JudgeProfile, JudgeSettings, open_judge

    settings = JudgeSettings(profiles={"main": JudgeProfile(model="m", base_url=endpoint.url)})
    with pytest.raises(FailedPreconditionError, match="in use by process"):
        async with open_judge(settings, None, tmp_path / "reward"):  # type: ignore[arg-type]
            pass
