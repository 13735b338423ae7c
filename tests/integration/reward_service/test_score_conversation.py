"""The conversation of the Score stream, frame by frame, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from score_conversation import Conversation, batch, details_of, group, texts

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.types.scoring import FinishReason, Purpose
from reward_service import Failed, FailureCode, Item, NotApplicable, Scored, reward

UNKNOWN_FRAME = pb.ScoreRequest.FromString(b"\xa2\x06\x00")  # field 100, which no version has


@reward(name="length", description="Number of characters.", min_value=0)
async def length(items: list[Item]) -> list[float]:
    return [float(len(item.text)) for item in items]


@reward(
    name="tagged",
    description="Takes a config.",
    config={
        "type": "object",
        "properties": {"tag": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["tag"],
    },
)
async def tagged(item: Item) -> float:
    return float(item.config["tag"] in item.text)


@pytest.fixture
async def talk(serve: Any) -> AsyncIterator[Conversation]:
    yield Conversation(await serve(length, tagged))


class Gates:
    """A reward that scores a completion when the test says so: its text is the name of the gate."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.started: list[str] = []
        self.cancelled: list[str] = []

        @reward(name="gated", description="Waits.")
        async def gated(item: Item) -> float:
            self.started.append(item.text)
            try:
                await self.gates.setdefault(item.text, asyncio.Event()).wait()
            except asyncio.CancelledError:
                self.cancelled.append(item.text)
                raise
            return 1.0

        self.reward = gated

    def open(self, *names: str) -> None:
        for name in names:
            self.gates.setdefault(name, asyncio.Event()).set()


async def test_a_whole_conversation(talk: Conversation) -> None:
    opened = await talk.open("length")
    assert opened.max_in_flight_completions == 1024
    assert not opened.retained_batch_ids
    await talk.send(texts("a", "x", "", "xyz"), batch("b", group(["xx"]), group(["xxxx"], 1)))
    await talk.close()
    assert talk.values("a") == {"0": 1.0, "1": 0.0, "2": 3.0}
    assert talk.values("b") == {"0": 2.0, "1": 4.0}
    assert [talk.done[b].scored_count for b in "ab"] == [3, 2]
    assert all(result.reward_key == "length" for result in talk.results)
    assert all(result.HasField("scoring_duration") for result in talk.results)
    assert not talk.rejected


async def test_results_come_as_they_are_ready(serve: Any) -> None:
    gates = Gates()
    talk = Conversation(await serve(gates.reward))
    await talk.open("gated")
    await talk.send(texts("a", "first", "second"), texts("b", "third"))
    for name in ("third", "second"):
        gates.open(name)
        while not (talk.results and talk.results[-1].completion_id == {"third": "0", "second": "1"}[name]):
            await talk.read()
    assert "b" in (await talk.until("b")).done
    assert "a" not in talk.done
    gates.open("first")
    await talk.until("a")
    assert talk.frames[-1] == "done"
    assert [(r.batch_id, r.completion_id) for r in talk.results] == [("b", "0"), ("a", "1"), ("a", "0")]


async def test_what_is_ready_together_travels_together(talk: Conversation) -> None:
    await talk.open("length")
    await talk.send(texts("a", *["x"] * 640))
    await talk.until("a")
    assert len(talk.of("a")) == 640
    assert talk.frames.count("results") <= 10


async def test_several_rewards_and_a_choice_of_them(talk: Conversation) -> None:
    await talk.open_with(
        pb.SessionOpen(
            session_id="s",
            protocol_version=1,
            rewards=[
                pb.RewardSelection(key="l", name="length"),
                pb.RewardSelection(key="t1", name="tagged", config_json='{"tag": "x"}'),
                pb.RewardSelection(key="t2", name="tagged", config_json='{"tag": "y"}'),
            ],
        )
    )
    await talk.send(texts("all", "x", "yy"), texts("some", "y", keys=["t2", "l"]))
    await talk.close()
    found = {(r.batch_id, r.completion_id, r.reward_key): r.score.value for r in talk.results}
    assert found == {
        ("all", "0", "l"): 1.0,
        ("all", "0", "t1"): 1.0,
        ("all", "0", "t2"): 0.0,
        ("all", "1", "l"): 2.0,
        ("all", "1", "t1"): 0.0,
        ("all", "1", "t2"): 1.0,
        ("some", "0", "t2"): 1.0,
        ("some", "0", "l"): 1.0,
    }
    assert (talk.done["all"].scored_count, talk.done["some"].scored_count) == (6, 2)


async def test_unknown_frames_are_ignored(talk: Conversation) -> None:
    await talk.open("length")
    await talk.call.write(UNKNOWN_FRAME)
    await talk.send(texts("a", "x"))
    await talk.call.write(UNKNOWN_FRAME)
    await talk.close()
    assert talk.values("a") == {"0": 1.0}


@pytest.mark.parametrize("first", [pb.ScoreRequest(batch=texts("a", "x")), UNKNOWN_FRAME, None])
async def test_the_first_frame_is_open(talk: Conversation, first: pb.ScoreRequest | None) -> None:
    if first is None:
        await talk.call.done_writing()
    else:
        await talk.call.write(first)
    error = await talk.ending()
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert list(details_of(error)["violations"]) == ["open"]


async def test_open_comes_once(talk: Conversation) -> None:
    await talk.open("length")
    await talk.call.write(pb.ScoreRequest(open=pb.SessionOpen(session_id="s", protocol_version=1)))
    error = await talk.ending()
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "twice" in details_of(error)["violations"]["open"]


@pytest.mark.parametrize("version", [0, 2])
async def test_an_unknown_protocol_version_is_refused(talk: Conversation, version: int) -> None:
    await talk.call.write(pb.ScoreRequest(open=pb.SessionOpen(session_id="s", protocol_version=version)))
    error = await talk.ending()
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert f"protocol_version {version}" in (error.details() or "")


async def test_everything_wrong_with_open_is_named_at_once(talk: Conversation) -> None:
    await talk.call.write(
        pb.ScoreRequest(
            open=pb.SessionOpen(
                protocol_version=1,
                rewards=[
                    pb.RewardSelection(key="a", name="tagged", config_json='{"limit": "x"}'),
                    pb.RewardSelection(key="a", name="length"),
                    pb.RewardSelection(name="nobody"),
                    pb.RewardSelection(key="b", name="length", config_json='{"limit": 1}'),
                    pb.RewardSelection(key="c", name="length", config_json="{"),
                ],
            )
        )
    )
    error = await talk.ending()
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    violations = details_of(error)["violations"]
    assert set(violations) == {
        "session_id",
        "rewards[0].config.tag",
        "rewards[0].config.limit",
        "rewards[1].key",
        "rewards[2].key",
        "rewards[2].name",
        "rewards[3].config.limit",
        "rewards[4].config",
    }
    assert '"nobody" is not on offer' in violations["rewards[2].name"]


async def test_a_session_without_rewards_is_refused(talk: Conversation) -> None:
    await talk.call.write(pb.ScoreRequest(open=pb.SessionOpen(session_id="s", protocol_version=1)))
    assert list(details_of(await talk.ending())["violations"]) == ["rewards"]


async def test_malformed_batches_are_rejected_by_name_and_the_stream_goes_on(talk: Conversation) -> None:
    await talk.open("length")
    bad_columns = group(["x"], 7)
    bad_columns.columns["list"].json_value = "[1"
    bad_columns.columns["ratio"].double_value = float("nan")
    cases: dict[str, tuple[pb.Batch, list[str]]] = {
        "": (texts("", "x"), ["batch_id is empty"]),
        "none": (batch("none"), ["groups is empty"]),
        "empty": (batch("empty", group([])), ["groups[0].completions is empty"]),
        "doubled": (
            batch("doubled", group(["x", "y"]), group(["z"], 1)),
            ['groups[1].completions[0].completion_id "1" is the id of groups[0].completions[1] too'],
        ),
        "keys": (
            texts("keys", "x", keys=["length", "other", "length"]),
            [
                'reward_keys[1] "other" is no reward key of the session',
                'reward_keys[2] "length" is named twice',
            ],
        ),
        "columns": (batch("columns", bad_columns), ["columns['list']", "columns['ratio']"]),
        "many": (
            batch("many", group([]), pb.PromptGroup(completions=[pb.Completion()]), group(["x"])),
            ["groups[0].completions is empty", "groups[1].completions[0].completion_id is empty"],
        ),
    }
    for batch_id, (bad, messages) in cases.items():
        await talk.send(bad)
        await talk.until(batch_id)
        failure = talk.rejected[batch_id]
        assert failure.code == pb.Failure.CODE_INVALID
        assert not failure.HasField("retry_delay")
        for message in messages:
            assert message in failure.message
    await talk.send(texts("good", "x"), texts("keys", "x"))  # an id that was rejected is free
    await talk.close()
    assert talk.values("good") == {"0": 1.0}
    assert talk.values("keys") == {"0": 1.0}


async def test_a_long_list_of_faults_is_cut(talk: Conversation) -> None:
    await talk.open("length")
    await talk.send(batch("a", *[group([])] * 500))
    await talk.until("a")
    assert talk.rejected["a"].message.endswith("and 480 more")


async def test_every_outcome_travels(serve: Any) -> None:
    answers: dict[str, Any] = {
        "zero": 0.0,
        "score": Scored(0.5, {"part": 0.25}, "because"),
        "none": None,
        "not": NotApplicable("no tests"),
        "down": Failed(FailureCode.UNAVAILABLE, "judge is down", 1.5),
        "spent": Failed(FailureCode.EXHAUSTED, "budget is spent"),
        "nan": float("nan"),
        "text": "1.0",
        "surrogate": Scored(1.0, explanation="\ud83d"),
    }

    @reward(name="answers", description="Answers.")
    async def some(item: Item) -> Any:
        if item.text == "raise":
            raise ValueError("broken \ud83d")
        return answers[item.text]

    talk = Conversation(await serve(some))
    await talk.open("answers")
    await talk.send(texts("a", *answers, "raise"))
    await talk.close()
    found = dict(
        zip([*answers, "raise"], [talk.of("a")[str(i)] for i in range(len(answers) + 1)], strict=True)
    )
    assert found["zero"].WhichOneof("outcome") == "score"
    assert found["zero"].score.value == 0.0
    assert found["score"].score == pb.Score(value=0.5, metrics={"part": 0.25}, explanation="because")
    assert found["none"].WhichOneof("outcome") == "not_applicable"
    assert found["not"].not_applicable.reason == "no tests"
    assert found["down"].failure.code == pb.Failure.CODE_UNAVAILABLE
    assert found["down"].failure.retry_delay.ToMilliseconds() == 1500
    assert found["spent"].failure.code == pb.Failure.CODE_EXHAUSTED
    assert not found["spent"].failure.HasField("retry_delay")
    for name in ("nan", "text", "raise"):
        assert found[name].failure.code == pb.Failure.CODE_INTERNAL
    assert "test_score_conversation.py:" in found["raise"].failure.message
    assert found["surrogate"].score.explanation == "?"
    done = talk.done["a"]
    assert (done.scored_count, done.not_applicable_count, done.failed_count) == (3, 2, 5)


async def test_an_item_is_what_was_sent(serve: Any) -> None:
    seen: list[Item[Any]] = []

    @reward(name="spy", description="Looks.")
    async def spy(item: Item) -> float:
        seen.append(item)
        return 1.0

    talk = Conversation(await serve(spy))
    await talk.open("spy", job_id="job-1")
    sent = batch("a", group(["text"], answer=72, ratio=0.5, name="72", yes=True, nothing=None))
    sent.step, sent.purpose = 9, pb.Batch.PURPOSE_EVAL
    sent.groups[0].columns["list"].json_value = '[1, "a", {"b": null}]'
    sent.groups[0].columns["big"].json_value = str(2**80)
    sent.groups[0].prompt_text = "<user>What is 5 + 7?"
    completion = sent.groups[0].completions[0]
    completion.prefill, completion.raw_text = "<think>", "text<eos>"
    completion.finish_reason = pb.Completion.FINISH_REASON_LENGTH
    await talk.send(sent)
    await talk.close()
    (item,) = seen
    assert item.columns == {
        "answer": 72,
        "ratio": 0.5,
        "name": "72",
        "yes": True,
        "nothing": None,
        "list": [1, "a", {"b": None}],
        "big": 2**80,
    }
    assert type(item.columns["answer"]) is int
    assert (item.step, item.purpose, item.job_id) == (9, Purpose.EVAL, "job-1")
    assert (item.text, item.full_text) == ("text", "<think>text")
    assert item.completion.raw_text == "text<eos>"
    assert item.completion.finish_reason is FinishReason.LENGTH
    assert item.prompt.text == "<user>What is 5 + 7?"
    assert [(m.role, m.content) for m in item.prompt.messages] == [("user", "What is 5 + 7?")]


async def test_a_missing_column_fails_its_completions_alone(serve: Any) -> None:
    calls: list[int] = []

    @reward(name="needs", description="Needs.", required_columns=["answer", "unit"])
    async def needs(items: list[Item]) -> list[float]:
        calls.append(len(items))
        return [1.0] * len(items)

    talk = Conversation(await serve(needs))
    await talk.open("needs")
    await talk.send(
        batch(
            "a",
            group(["x", "y"], 0, answer=1, unit="kg"),
            group(["x", "y"], 2, answer=1),
            group(["x"], 4, answer=1, unit=None),
        ),
        batch("b", group(["x"])),
    )
    await talk.close()
    expected = {"0": "score", "1": "score", "2": "CODE_INVALID", "3": "CODE_INVALID", "4": "score"}
    assert talk.codes("a") == expected
    assert "lacks column unit" in talk.of("a")["2"].failure.message
    assert talk.codes("b") == {"0": "CODE_INVALID"}
    assert "answer, unit" in talk.of("b")["0"].failure.message
    assert calls == [3]


async def test_a_reward_of_whole_groups_sees_whole_groups_and_others_see_chunks(serve: Any) -> None:
    groups: list[int] = []
    chunks: list[int] = []

    @reward(name="ranked", description="Ranks.", scope="group")
    async def ranked(items: list[Item]) -> list[float]:
        assert len({item.prompt.group_id for item in items}) == 1
        groups.append(len(items))
        return [float(rank) for rank in range(len(items))]

    @reward(name="chunked", description="Takes chunks.", chunk_size=4)
    async def chunked(items: list[Item]) -> list[float]:
        chunks.append(len(items))
        return [1.0] * len(items)

    talk = Conversation(await serve(ranked, chunked))
    await talk.open("ranked", "chunked")
    await talk.send(batch("a", group(["x"] * 3, 0, "g0"), group(["x"] * 7, 3, "g1")))
    await talk.close()
    assert sorted(groups) == [3, 7]
    assert sorted(chunks) == [2, 4, 4]
    ranks = {r.completion_id: r.score.value for r in talk.results if r.reward_key == "ranked"}
    assert ranks == {str(i): float(i if i < 3 else i - 3) for i in range(10)}


async def test_cancel_ends_what_is_open_and_stops_it(serve: Any) -> None:
    gates = Gates()
    talk = Conversation(await serve(gates.reward))
    await talk.open("gated")
    await talk.send(texts("a", "one", "two", "three"), texts("b", "four"))
    gates.open("two")
    while not talk.results:
        await talk.read()
    await talk.cancel("unknown")
    await talk.cancel("a")
    await talk.until("a")
    assert talk.codes("a") == {"0": "CODE_CANCELLED", "1": "score", "2": "CODE_CANCELLED"}
    assert (talk.done["a"].scored_count, talk.done["a"].failed_count) == (1, 2)
    await talk.cancel("a")
    gates.open("four")
    await talk.close()
    assert talk.codes("b") == {"0": "score"}
    assert sorted(gates.cancelled) == ["one", "three"]


async def test_the_timeout_of_a_batch_ends_what_is_open(serve: Any) -> None:
    gates = Gates()
    talk = Conversation(await serve(gates.reward))
    await talk.open("gated")
    gates.open("quick")
    await talk.send(texts("a", "quick", "slow", timeout=0.3), texts("late", "quick", timeout=0.0))
    await talk.until("a", "late")
    assert talk.codes("a") == {"0": "score", "1": "CODE_TIMEOUT"}
    assert "0.3 s" in talk.of("a")["1"].failure.message
    assert talk.codes("late") == {"0": "CODE_TIMEOUT"}
    assert (talk.done["a"].scored_count, talk.done["a"].failed_count) == (1, 1)
    await talk.send(texts("unset", "quick", timeout=None))
    await talk.close()
    assert talk.codes("unset") == {"0": "score"}
    assert gates.cancelled == ["slow"]


async def test_a_batch_without_timeout_gets_the_servers(serve: Any) -> None:
    gates = Gates()
    talk = Conversation(await serve(gates.reward, batch_timeout_seconds=0.2))
    await talk.open("gated")
    await talk.send(texts("a", "slow", timeout=None))
    await talk.until("a")
    assert talk.codes("a") == {"0": "CODE_TIMEOUT"}


async def test_half_close_finishes_what_was_accepted(serve: Any) -> None:
    gates = Gates()
    talk = Conversation(await serve(gates.reward))
    await talk.open("gated")
    await talk.send(texts("a", "one"))
    await talk.call.done_writing()
    asyncio.get_running_loop().call_later(0.1, gates.open, "one")
    while await talk.read() is not None:
        pass
    assert await talk.call.code() is grpc.StatusCode.OK
    assert talk.codes("a") == {"0": "score"}
    assert "a" in talk.done


async def test_one_text_that_is_not_utf8_does_not_fail_its_batch(serve: Any) -> None:
    channel = await serve(length)
    call = channel.stream_stream(
        "/plaudit.reward.v1.RewardService/Score",
        request_serializer=bytes,
        response_deserializer=pb.ScoreResponse.FromString,
    )()
    opening = pb.SessionOpen(
        session_id="s", protocol_version=1, rewards=[pb.RewardSelection(key="l", name="length")]
    )
    await call.write(pb.ScoreRequest(open=opening).SerializeToString())
    sent = pb.ScoreRequest(batch=batch("a", group(["xxxx", "abc"], answer="xxxx"))).SerializeToString()
    # A lone surrogate, as JavaScript writes it, in the text and in a column.
    await call.write(sent.replace(b"xxxx", b"x\xed\xa0\xbd"))
    await call.done_writing()
    values = {r.completion_id: r.score.value async for f in call for r in f.results.results}
    assert values == {"0": 4.0, "1": 3.0}  # each of its three bytes is replaced


async def test_bytes_that_are_no_frame_end_the_stream_with_an_explanation(serve: Any) -> None:
    channel = await serve(length)
    for opened in (False, True):
        call = channel.stream_stream(
            "/plaudit.reward.v1.RewardService/Score", request_serializer=bytes, response_deserializer=bytes
        )()
        if opened:
            opening = pb.SessionOpen(
                session_id="s", protocol_version=1, rewards=[pb.RewardSelection(key="l", name="length")]
            )
            await call.write(pb.ScoreRequest(open=opening).SerializeToString())
            await call.read()
        await call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await asyncio.wait_for(call.read(), 10)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "no ScoreRequest" in (error.value.details() or "")


async def test_the_server_describes_itself(serve: Any) -> None:
    stub = pb_grpc.RewardServiceStub(await serve(length, tagged))
    info = await stub.GetServerInfo(pb.GetServerInfoRequest(client_name="tests"))
    assert (info.server_name, info.server_version) == ("tests", "1.2.3")
    assert (info.min_protocol_version, info.max_protocol_version) == (1, 1)
    assert info.limits.max_frame_bytes == 16 * 1024 * 1024
    assert info.limits.max_batch_completions == 4096
    assert info.capabilities.cancellation
    assert info.capabilities.result_retention.ToSeconds() == 60
    first, second = info.rewards
    assert (first.name, first.description) == ("length", "Number of characters.")
    assert first.scope == pb.Reward.SCOPE_COMPLETION
    assert (first.HasField("min_value"), first.HasField("max_value")) == (True, False)
    assert first.config_schema_json == ""
    assert '"tag"' in second.config_schema_json
