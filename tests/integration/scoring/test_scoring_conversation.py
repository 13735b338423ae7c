"""What goes over the wire to servers that behave, and what comes back."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from scoring_helpers import (
    WAIT_SECONDS,
    completion,
    eventually,
    prompt,
    score_all,
    submit_all,
    target,
)
from scoring_servers import (
    LENGTH,
    Answers,
    Requests,
    ScriptedServer,
    completions_of,
    done,
    each_batch,
    frame,
    info,
    length_results,
    opened,
)

from plaudit.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
)
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring import ProtocolCounters, RewardScorer
from plaudit.types.scoring import (
    ChatMessage,
    Completion,
    Failed,
    FailureCode,
    FinishReason,
    NotApplicable,
    Prompt,
    Purpose,
    Scored,
)

Serve = Callable[..., ScriptedServer]
MakeScorer = Callable[..., RewardScorer]


def test_every_completion_gets_its_own_score(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve()
    scorer = make_scorer(target(server.address))
    assert scorer.wait_ready(10)
    before = datetime.now(UTC)
    scores = score_all(scorer, [completion(i) for i in range(200)])
    assert [scores[f"1-{i}"].outcomes["length"].outcome for i in range(200)] == [
        Scored(float(i + 1)) for i in range(200)
    ]
    for one in scores.values():
        assert 0 <= one.outcomes["length"].latency_seconds < 30
        assert before <= one.outcomes["length"].scored_at <= datetime.now(UTC)
    assert scorer.counters() == ProtocolCounters()
    assert scorer.status_detail() == ""
    assert scorer.pause_reason() is None
    assert scorer.server_versions() == {"scripted": "1.0"}


def test_the_session_says_who_asks_and_for_what(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(description=info(LENGTH, pb.Reward(name="other")))
    scorer = make_scorer(
        target(server.address, name="a", config={"limit": 50, "tag": "ü"}),
        target(server.address, name="b", reward="other"),
    )
    assert scorer.wait_ready(10)
    (opening,) = server.opens
    assert uuid.UUID(opening.session_id).version == 5
    assert opening.protocol_version == 1
    assert [(s.key, s.name, s.config_json) for s in opening.rewards] == [
        ("a", "length", '{"limit": 50, "tag": "\\u00fc"}'),
        ("b", "other", ""),
    ]
    assert (opening.job_id, opening.model, list(opening.pending_batch_ids)) == ("job-1", "tiny", [])


def test_prompt_and_completion_arrive_with_their_types(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve()
    scorer = make_scorer(target(server.address, timeout_seconds=12.5))
    row = Prompt(
        group_id="7-g0",
        messages=(ChatMessage("system", "be brief"), ChatMessage("user", "2+2?")),
        columns={
            "answer": 72,
            "negative": -(2**63),
            "huge": 2**63,
            "price": 0.5,
            "whole_float": 72.0,
            "ok": True,
            "none": None,
            "text": "72",
            "list": [1, 2.5, None, "ü"],
            "object": {"a": {"b": 1}},
            "infinite": math.inf,
        },
        text="<system>be brief<user>2+2?",
    )
    scorer.submit(
        row,
        Completion(
            completion_id="7-3",
            text="4",
            token_count=2,
            finish_reason=FinishReason.LENGTH,
            prefill="<think>\n",
            raw_text="4<eos>",
        ),
        step=7,
        group_size=8,
        purpose=Purpose.EVAL,
    )
    assert scorer.wait(["7-3"], 10)
    (batch,) = server.batches
    assert uuid.UUID(batch.batch_id).version == 4
    assert (batch.step, batch.purpose, list(batch.reward_keys)) == (7, pb.Batch.PURPOSE_EVAL, [])
    assert batch.timeout.ToTimedelta().total_seconds() == 12.5
    (group,) = batch.groups
    assert (group.group_id, group.prompt_text) == ("7-g0", "<system>be brief<user>2+2?")
    assert [(m.role, m.content) for m in group.prompt] == [("system", "be brief"), ("user", "2+2?")]
    columns = {
        name: (
            value.WhichOneof("kind"),
            value.WhichOneof("kind") and getattr(value, value.WhichOneof("kind")),
        )
        for name, value in group.columns.items()
    }
    assert columns == {
        "answer": ("int_value", 72),
        "negative": ("int_value", -(2**63)),
        "huge": ("json_value", "9223372036854775808"),
        "price": ("double_value", 0.5),
        "whole_float": ("double_value", 72.0),
        "ok": ("bool_value", True),
        "none": (None, None),
        "text": ("string_value", "72"),
        "list": ("json_value", '[1, 2.5, null, "\\u00fc"]'),
        "object": ("json_value", '{"a": {"b": 1}}'),
        "infinite": ("json_value", "Infinity"),
    }
    (sent,) = group.completions
    assert sent == pb.Completion(
        completion_id="7-3",
        text="4",
        token_count=2,
        finish_reason=pb.Completion.FINISH_REASON_LENGTH,
        prefill="<think>\n",
        raw_text="4<eos>",
    )


def test_invalid_text_is_mended_and_its_neighbours_are_scored(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve()
    scorer = make_scorer(target(server.address))
    texts = ["fine", "cut \ud83d", "\ud83d\ude00 pair", "\udc00", "ü"]
    scores = score_all(scorer, [completion(i, text) for i, text in enumerate(texts)])
    arrived = [c.text for batch in server.batches for c in completions_of(batch)]
    assert sorted(arrived) == sorted(["fine", "cut \ufffd", "\U0001f600 pair", "\ufffd", "ü"])
    assert scores["1-0"].outcomes["length"].outcome == Scored(4.0)


def test_results_join_by_id_one_a_frame_in_reverse(serve: Serve, make_scorer: MakeScorer) -> None:
    def reversed_singles(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        yield pb.ScoreResponse()  # a frame of a later revision
        for result in reversed(results):
            yield frame([result])
        yield done(results)

    server = serve(each_batch(reversed_singles))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(128)])
    assert all(scores[f"1-{i}"].outcomes["length"].outcome == Scored(i + 1.0) for i in range(128))
    assert scorer.counters() == ProtocolCounters()


def test_score_parts_and_explanations_are_kept(serve: Serve, make_scorer: MakeScorer) -> None:
    def explained(batch: pb.Batch) -> Answers:
        first, second = completions_of(batch)
        results = [
            pb.Result(
                batch_id=batch.batch_id,
                completion_id=first.completion_id,
                reward_key="length",
                score=pb.Score(value=1.0, metrics={"a": 0.25, "b": math.nan}, explanation="e" * 5000),
            ),
            pb.Result(
                batch_id=batch.batch_id,
                completion_id=second.completion_id,
                reward_key="length",
                not_applicable=pb.NotApplicable(reason="no answer in the row"),
            ),
        ]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(explained))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0, {"a": 0.25}, "e" * 4096)
    assert scores["1-1"].outcomes["length"].outcome == NotApplicable("no answer in the row")


def test_full_frames_go_at_once_and_a_lone_completion_soon(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve()
    scorer = make_scorer(target(server.address))
    assert scorer.wait_ready(10)
    submit_all(scorer, [completion(i) for i in range(130)])
    eventually(lambda: len(server.batches) == 3)
    assert [len(completions_of(batch)) for batch in server.batches] == [64, 64, 2]
    scorer.submit(prompt(), completion(500), step=1, group_size=8)
    eventually(lambda: len(server.batches) == 4)  # nobody waits for it


@pytest.mark.parametrize(
    ("window", "limit", "expected"), [(1024, 0, 256), (400, 0, 100), (100, 0, 64), (1024, 90, 90)]
)
def test_frames_are_larger_where_many_wait_and_a_quarter_of_the_window_at_most(
    serve: Serve, make_scorer: MakeScorer, window: int, limit: int, expected: int
) -> None:
    may_answer = threading.Event()

    def held_up(batch: pb.Batch) -> Answers:
        may_answer.wait(WAIT_SECONDS)
        yield frame(length_results(batch))
        yield done(length_results(batch))

    server = serve(
        each_batch(held_up, window=window), description=info(limits=pb.Limits(max_batch_completions=limit))
    )
    scorer = make_scorer(target(server.address))
    ids = submit_all(scorer, [completion(i, "x") for i in range(3000)])
    may_answer.set()
    assert scorer.wait(ids, WAIT_SECONDS)
    sizes = [len(completions_of(batch)) for batch in server.batches]
    assert max(sizes) == expected
    assert sum(sizes) == 3000
    assert max(sizes[-2:]) <= max(64, expected // 2)  # the rest is not held in one piece


def test_frames_are_split_by_bytes(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve()
    scorer = make_scorer(target(server.address))
    score_all(scorer, [completion(i, "y" * 300_000) for i in range(10)])
    assert sorted(len(completions_of(batch)) for batch in server.batches) == [1, 3, 3, 3]
    assert max(server.frame_sizes) < 1_000_000


def test_the_limits_of_the_server_are_kept(serve: Serve, make_scorer: MakeScorer) -> None:
    limits = pb.Limits(max_batch_completions=5, max_frame_bytes=3000)
    server = serve(description=info(limits=limits))
    scorer = make_scorer(target(server.address))
    sizes = [100, 900, 1100, 2900, 5000, 40, 40, 40, 40, 40, 40, 40]
    scores = score_all(scorer, [completion(i, "y" * size) for i, size in enumerate(sizes)])
    assert max(server.frame_sizes) <= 3000
    assert max(len(completions_of(batch)) for batch in server.batches) == 5
    too_large = scores["1-4"].outcomes["length"].outcome
    assert isinstance(too_large, Failed)
    assert too_large.code is FailureCode.INVALID
    assert "max_frame_bytes is 3000" in too_large.message
    assert "1-4" not in [c.completion_id for batch in server.batches for c in completions_of(batch)]
    for index in (0, 1, 2, 5, 11):
        assert scores[f"1-{index}"].outcomes["length"].outcome == Scored(float(sizes[index]))


def test_a_reward_that_sees_the_group_gets_it_whole_and_the_others_do_not_wait(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    rank = pb.Reward(name="rank", scope=pb.Reward.SCOPE_GROUP)
    server = serve(_for_requested_keys, description=info(LENGTH, rank))
    scorer = make_scorer(target(server.address), target(server.address, name="rank", reward="rank"))
    assert scorer.wait_ready(10)
    for index in range(7):
        scorer.submit(prompt(0), completion(index), step=1, group_size=8)
    eventually(lambda: sum(len(completions_of(b)) for b in server.batches) == 7)
    assert {tuple(batch.reward_keys) for batch in server.batches} == {("length",)}
    scorer.submit(prompt(0), completion(7), step=1, group_size=8)
    ids = [f"1-{index}" for index in range(8)]
    assert scorer.wait(ids, 10)
    (whole,) = [batch for batch in server.batches if list(batch.reward_keys) == ["rank"]]
    assert [c.completion_id for c in whole.groups[0].completions] == ids
    assert len(whole.groups) == 1
    scores = scorer.take(ids)
    assert list(scores["1-3"].outcomes) == ["length", "rank"]


def _for_requested_keys(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
    yield opened()
    for request in requests:
        if request.HasField("batch"):
            keys = list(request.batch.reward_keys) or [selection.key for selection in session.rewards]
            results = length_results(request.batch, keys)
            yield frame(results)
            yield done(results)


def test_each_reward_keeps_its_own_timeout(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(_for_requested_keys)
    scorer = make_scorer(
        target(server.address, name="quick", timeout_seconds=5.0),
        target(server.address, name="slow", timeout_seconds=600.0),
        target(server.address, name="quick_too", timeout_seconds=5.0),
    )
    score_all(scorer, [completion(i) for i in range(3)])
    sent = sorted((list(b.reward_keys), b.timeout.seconds, len(completions_of(b))) for b in server.batches)
    assert sent == [(["quick", "quick_too"], 5, 3), (["slow"], 600, 3)]
    assert len(server.opens) == 1


def test_only_the_rewards_that_were_asked_for(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(_for_requested_keys)
    scorer = make_scorer(target(server.address, name="a"), target(server.address, name="b"))
    scorer.submit(prompt(), completion(0), step=1, group_size=1, reward_names=["b"])
    scorer.submit(prompt(), completion(1), step=1, group_size=1, reward_names=[])
    assert scorer.wait(["1-0", "1-1"], 10)
    scores = scorer.take(["1-0", "1-1"])
    assert list(scores["1-0"].outcomes) == ["b"]
    assert scores["1-1"].outcomes == {}
    assert [list(batch.reward_keys) for batch in server.batches] == [["b"]]


@pytest.mark.parametrize("window", [1, 3, 8])
def test_never_more_in_flight_than_the_window(serve: Serve, make_scorer: MakeScorer, window: int) -> None:
    # This server answers a batch only once no other arrives, so it sees all that is in flight at once.
    seen: list[int] = []

    def script(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened(window)
        for request in requests:
            time.sleep(0.005)
            in_flight = sum(len(completions_of(b)) for b in server.batches) - sum(seen)
            assert in_flight <= window
            results = length_results(request.batch)
            seen.append(len(results))
            yield frame(results)
            yield done(results)

    server = serve(script)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(30)])
    assert all(scores[f"1-{i}"].outcomes["length"].outcome == Scored(i + 1.0) for i in range(30))
    assert max(seen) == window
    assert len(server.opens) == 1


def test_a_group_above_the_window_goes_alone(serve: Serve, make_scorer: MakeScorer) -> None:
    answered = 0
    peaks: list[int] = []

    def script(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        nonlocal answered
        yield opened(4)
        for request in requests:
            time.sleep(0.02)
            peaks.append(sum(len(completions_of(b)) for b in server.batches) - answered)
            results = length_results(request.batch)
            answered += len(results)
            yield frame(results)
            yield done(results)

    server = serve(script, description=info(pb.Reward(name="length", scope=pb.Reward.SCOPE_GROUP)))
    scorer = make_scorer(target(server.address))
    score_all(scorer, [completion(i) for i in range(32)])
    assert peaks == [8, 8, 8, 8]


def test_the_window_can_change(serve: Serve, make_scorer: MakeScorer) -> None:
    def script(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened(2)
        for number, request in enumerate(requests):
            if number == 2:
                yield pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=16))
            results = length_results(request.batch)
            yield frame(results)
            yield done(results)

    server = serve(script)
    scorer = make_scorer(target(server.address))
    score_all(scorer, [completion(i) for i in range(40)])
    sizes = [len(completions_of(batch)) for batch in server.batches]
    assert sizes[:3] == [2, 2, 2]
    assert max(sizes) == 16


def test_what_is_ready_is_shared_by_the_replicas(serve: Serve, make_scorer: MakeScorer) -> None:
    servers = [serve() for _ in range(3)]
    scorer = make_scorer(target(*(server.address for server in servers)))
    eventually(lambda: all(server.opens for server in servers))
    time.sleep(0.2)
    score_all(scorer, [completion(i) for i in range(60)])
    assert [sum(len(completions_of(b)) for b in server.batches) for server in servers] == [20, 20, 20]
    assert len({server.opens[0].session_id for server in servers}) == 3


def test_sessions_end_with_a_half_close(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve()
    scorer = make_scorer(target(server.address))
    score_all(scorer, [completion(0)])
    scorer.close()
    eventually(lambda: server.clean_ends == 1, 5)
    with pytest.raises(FailedPreconditionError, match="closed"):
        scorer.submit(prompt(), completion(1), step=1, group_size=1)


def test_mistakes_of_the_caller_are_told_to_the_caller(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(each_batch(lambda batch: ()))
    scorer = make_scorer(target(server.address))
    scorer.submit(prompt(), completion(0), step=1, group_size=1)
    with pytest.raises(AlreadyExistsError, match="1-0"):
        scorer.submit(prompt(), completion(0), step=1, group_size=1)
    with pytest.raises(InvalidArgumentError, match=r"'lenght'.*length"):
        scorer.submit(prompt(), completion(1), step=1, group_size=1, reward_names=["lenght"])
    with pytest.raises(InvalidArgumentError, match="token_count"):
        scorer.submit(prompt(), Completion("1-2", "x", token_count=-1), step=1, group_size=1)
    with pytest.raises(NotFoundError, match="1-9"):
        scorer.take(["1-9"])


def test_taking_early_gives_up_what_is_open(serve: Serve, make_scorer: MakeScorer) -> None:
    def first_half_only(batch: pb.Batch) -> Answers:
        yield frame(length_results(batch)[:2])

    server = serve(each_batch(first_half_only))
    scorer = make_scorer(target(server.address))
    ids = submit_all(scorer, [completion(i) for i in range(4)])
    assert not scorer.wait(ids, 0.3)
    assert scorer.wait(ids[:2], 10)
    scores = scorer.take(ids)
    assert scores["1-1"].outcomes["length"].outcome == Scored(2.0)
    open_one = scores["1-3"].outcomes["length"].outcome
    assert isinstance(open_one, Failed)
    assert open_one.code is FailureCode.TIMEOUT
    eventually(lambda: server.cancels == [server.batches[0].batch_id])
    # The ids are free again.
    scorer.submit(prompt(), completion(0), step=2, group_size=1)


def test_status_says_how_many_are_outstanding(serve: Serve, make_scorer: MakeScorer) -> None:
    def all_but_one(batch: pb.Batch) -> Answers:
        yield frame(length_results(batch)[1:])

    server = serve(each_batch(all_but_one))
    scorer = make_scorer(target(server.address, server="judge"))
    ids = submit_all(scorer, [completion(i) for i in range(3)])
    assert not scorer.wait(ids, 0.1)
    assert scorer.status_detail() == ""
    eventually(scorer.status_detail)
    detail = scorer.status_detail()
    assert detail.startswith(
        f'reward server "judge" ({server.address}): 1 of 3 completions outstanding for '
    ), detail


def test_after_the_end_what_is_open_is_a_failure(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(each_batch(lambda batch: ()))
    scorer = make_scorer(target(server.address))
    ids = submit_all(scorer, [completion(0)])
    eventually(lambda: server.batches)
    scorer.close()
    with pytest.raises(FailedPreconditionError, match="closed"):
        scorer.wait(ids, 10)
    assert isinstance(scorer.take(ids)["1-0"].outcomes["length"].outcome, Failed)


def test_a_wait_ends_with_an_error_where_the_scorer_breaks_down(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    server = serve(each_batch(lambda batch: ()))
    scorer = make_scorer(target(server.address))
    ids = submit_all(scorer, [completion(0)])
    eventually(lambda: server.batches)
    # As any mistake of ours that ends the loop would.
    breaking_down = threading.Timer(0.3, lambda: scorer._loop.call_soon_threadsafe(scorer._loop.stop))
    breaking_down.start()
    for _ in range(2):  # while it waits, and after the end
        with pytest.raises(InternalError, match="has ended"):
            scorer.wait(ids, WAIT_SECONDS)
    assert isinstance(scorer.take(ids)["1-0"].outcomes["length"].outcome, Failed)


def test_the_batches_of_a_step_have_one_trace(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(description=info(LENGTH, limits=pb.Limits(max_batch_completions=2)))
    scorer = make_scorer(target(server.address))
    score_all(scorer, [completion(i) for i in range(4)])
    scorer.submit(prompt(), completion(9), step=2, group_size=1)
    assert scorer.wait(["1-9"], WAIT_SECONDS)
    versions, traces, spans, flags = zip(*(b.traceparent.split("-") for b in server.batches), strict=True)
    assert set(versions) == {"00"}
    assert set(flags) == {"01"}
    assert list(traces) == [scorer.trace_id(1), scorer.trace_id(1), scorer.trace_id(2)]
    assert len(set(traces)) == 2
    assert len(set(spans)) == 3
    assert {(len(trace), len(span)) for trace, span in zip(traces, spans, strict=True)} == {(32, 16)}
