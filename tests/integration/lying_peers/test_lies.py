"""Whatever a server says, a score is the honest one or none; and every lie is counted under its cause."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest
from bad_network import Trouble, bad_network
from lying_server import HUGE_EXPLANATION, RANGED, Liar
from scoring_helpers import (
    WAIT_SECONDS,
    ServerProcess,
    completion,
    eventually,
    score_all,
    submit_all,
    target,
)
from scoring_servers import (
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
    well_behaved,
)

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring import PROTOCOL_ERRORS, CompletionScores, ProtocolCounters, RewardScorer
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored

Serve = Callable[..., ScriptedServer]
ServeProcess = Callable[..., ServerProcess]
MakeScorer = Callable[..., RewardScorer]


def outcome(scores: dict[str, CompletionScores], index: int) -> Scored | NotApplicable | Failed:
    return scores[f"1-{index}"].outcomes["length"].outcome


@pytest.mark.parametrize("seed", range(4))
def test_a_score_is_the_honest_one_or_none(serve: Serve, make_scorer: MakeScorer, seed: int) -> None:
    liar = Liar(seed)
    server = serve(liar.script, description=info(RANGED))
    scorer = make_scorer(target(server.address), max_attempts=1)
    total = 300
    scores = score_all(scorer, [completion(i, "x" * (i % 60)) for i in range(total)])
    for index in range(total):
        found = outcome(scores, index)
        if f"1-{index}" in liar.lied_about:
            assert isinstance(found, Failed)
            assert len(found.message) <= 4096
        else:
            assert isinstance(found, Scored)
            assert found.value == float(index % 60)
            assert len(found.explanation) <= 4096
            assert len(found.metrics) <= 64
            assert all(len(name) <= 128 for name in found.metrics)
    # The last frames may still be on their way.
    eventually(lambda: scorer.counters() == ProtocolCounters(**liar.said))
    assert set(liar.said) >= set(PROTOCOL_ERRORS) - {"late", "unfinished", "unreadable"}
    counted = scorer.counters_by_reward()["length"]
    assert counted.protocol_errors == liar.said.total()


def test_a_lie_is_counted_for_the_reward_that_it_is_about(serve: Serve, make_scorer: MakeScorer) -> None:
    def half_honest(batch: pb.Batch) -> Answers:
        results = length_results(batch, ("good", "bad"))
        for result in results:
            if result.reward_key == "bad":
                result.score.value = float("nan")
        yield frame(results)
        yield done(results)

    server = serve(each_batch(half_honest))
    scorer = make_scorer(target(server.address, name="good"), target(server.address, name="bad"))
    score_all(scorer, [completion(i) for i in range(3)])
    by_reward = scorer.counters_by_reward()
    assert by_reward == {"good": ProtocolCounters(), "bad": ProtocolCounters(non_finite=3)}


def test_what_comes_after_the_deadline_is_late(serve: Serve, make_scorer: MakeScorer) -> None:
    """The server holds every answer back until the scorer has given up, and then sends them all."""

    def slow(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        held: dict[str, pb.Batch] = {}
        yield opened()
        for request in requests:
            if request.HasField("batch"):
                held[request.batch.batch_id] = request.batch
            elif request.HasField("cancel"):
                results = length_results(held.pop(request.cancel.batch_id))
                yield frame(results)
                yield done(results)

    server = serve(slow)
    scorer = make_scorer(
        target(server.address, timeout_seconds=0.2), client_grace_seconds=0.1, max_attempts=1
    )
    scores = score_all(scorer, [completion(i) for i in range(5)])
    assert [outcome(scores, i).code for i in range(5)] == [FailureCode.TIMEOUT] * 5  # type: ignore[union-attr]
    eventually(lambda: scorer.counters() == ProtocolCounters(late=5))
    assert scorer.counters_by_reward()["length"].late == 5


def test_a_done_that_never_comes_is_counted_and_costs_nothing_else(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    server = serve(each_batch(lambda batch: [frame(length_results(batch))]))
    scorer = make_scorer(target(server.address, timeout_seconds=0.2), client_grace_seconds=0.1)
    for start in (0, 10):
        scores = score_all(scorer, [completion(i) for i in range(start, start + 3)])
        assert outcome(scores, start + 2) == Scored(start + 3.0)
    eventually(lambda: scorer.counters() == ProtocolCounters(unfinished=2))
    assert len(server.opens) == 1


@pytest.mark.parametrize("window", [0, 1, 2**32 - 1])
def test_absurd_windows(serve: Serve, make_scorer: MakeScorer, window: int) -> None:
    """0 is taken for 1, as nothing could ever be scored; what is enormous is bounded here."""

    def script(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened(window)
        for request in requests:
            results = length_results(request.batch)
            yield pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=window))
            yield frame(results)
            yield done(results)

    server = serve(script)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(40)])
    assert [outcome(scores, i) for i in range(40)] == [Scored(i + 1.0) for i in range(40)]
    assert max(len(completions_of(batch)) for batch in server.batches) == (1 if window < 2 else 40)
    assert scorer.counters() == ProtocolCounters()


def test_a_flood_of_frames_that_nobody_asked_for(serve: Serve, make_scorer: MakeScorer) -> None:
    flood = 20_000

    def flooding(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        stray = pb.Result(batch_id="b", completion_id="c", reward_key="length", score=pb.Score(value=1.0))
        yield opened()
        batch = next(requests).batch
        for _ in range(flood // 500):
            yield frame([stray] * 500)
            yield pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=7))
            yield pb.ScoreResponse()
        yield frame(length_results(batch))
        yield done(length_results(batch))
        yield from well_behaved_rest(requests)

    def well_behaved_rest(requests: Requests) -> Answers:
        for request in requests:
            yield frame(length_results(request.batch))
            yield done(length_results(request.batch))

    server = serve(flooding)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(30)])
    assert [outcome(scores, i) for i in range(30)] == [Scored(i + 1.0) for i in range(30)]
    assert scorer.counters() == ProtocolCounters(unknown=flood)


def test_a_server_that_never_opens_is_left_and_told_of(serve: Serve, make_scorer: MakeScorer) -> None:
    waiting = threading.Event()

    def never(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        # Frames that a client does not know are no answer either.
        yield pb.ScoreResponse()
        waiting.set()
        while context.is_active():
            next(requests, None)
        yield opened()

    server = serve(never, well_behaved)
    scorer = make_scorer(target(server.address, server="mute"), connect_timeout_seconds=2.5)
    ids = submit_all(scorer, [completion(0)])
    assert waiting.wait(WAIT_SECONDS)
    eventually(scorer.status_detail)
    assert scorer.status_detail().startswith(
        f'waiting for reward server "mute" ({server.address}) to come up'
    )
    assert "1 of 1 completions outstanding" in scorer.status_detail()
    assert scorer.wait(ids, WAIT_SECONDS)
    assert outcome(scorer.take(ids), 0) == Scored(1.0)


def test_an_answer_above_every_limit_fails_its_completion_alone(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    """An explanation of 17 MB breaks the connection whenever it is sent; the others get their scores."""

    def wordy(batch: pb.Batch) -> Answers:
        for result in length_results(batch):
            if result.completion_id == "1-2":
                result.score.explanation = HUGE_EXPLANATION * 22
            yield frame([result])
        yield done(length_results(batch))

    server = serve(each_batch(wordy), options=[("grpc.max_send_message_length", -1)])
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(5)])
    for index in (0, 1, 3, 4):
        assert outcome(scores, index) == Scored(index + 1.0)
    failed = outcome(scores, 2)
    assert isinstance(failed, Failed)
    assert failed.code is FailureCode.INTERNAL
    assert "broke 4 times" in failed.message
    assert scorer.counters().unreadable == 4


def test_a_frame_that_is_no_message_is_counted_and_the_session_goes_on(
    make_scorer: MakeScorer,
) -> None:
    def garbled() -> Iterator[bytes]:
        yield opened().SerializeToString()
        yield b"\xff\xff\xff\xff garbage"

    streams = 0

    def score(requests: Iterator[pb.ScoreRequest], context: grpc.ServicerContext) -> Iterator[bytes]:
        nonlocal streams
        streams += 1
        first = next(requests).open
        if streams == 1:
            yield from garbled()
            return
        for answer in well_behaved(first, requests, context):
            yield answer.SerializeToString()

    server = grpc.server(futures.ThreadPoolExecutor(4))
    handlers = {
        "Score": grpc.stream_stream_rpc_method_handler(score, pb.ScoreRequest.FromString),
        "GetServerInfo": grpc.unary_unary_rpc_method_handler(
            lambda request, context: info(), None, pb.GetServerInfoResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("plaudit.reward.v1.RewardService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        scorer = make_scorer(target(f"127.0.0.1:{port}"))
        scores = score_all(scorer, [completion(0)])
        assert outcome(scores, 0) == Scored(1.0)
        assert scorer.counters().unreadable == 1
    finally:
        server.stop(None)


def test_a_server_that_closes_half_way_again_and_again(serve: Serve, make_scorer: MakeScorer) -> None:
    """Each stream brings three results and ends, five times; nothing is lost and nothing counts twice."""

    def half_way(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened(4)
        sent = 0
        for request in requests:
            for result in length_results(request.batch):
                yield frame([result])
                sent += 1
                if sent == 3:
                    return
            yield done(length_results(request.batch))

    server = serve(*[half_way] * 5, well_behaved)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(20)])
    assert [outcome(scores, i) for i in range(20)] == [Scored(i + 1.0) for i in range(20)]
    assert scorer.counters().breaks >= 3
    assert scorer.counters().protocol_errors == 0


def test_a_flood_of_goodbyes_is_one_goodbye(serve: Serve, make_scorer: MakeScorer) -> None:
    def leaving(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened()
        batch = next(requests).batch
        goodbye = pb.Draining()
        goodbye.grace.FromSeconds(30)
        for _ in range(5_000):
            yield pb.ScoreResponse(draining=goodbye)
        yield frame(length_results(batch))
        yield done(length_results(batch))
        assert next(requests, None) is None

    server = serve(leaving, well_behaved)
    scorer = make_scorer(target(server.address))
    for start in (0, 10):
        scores = score_all(scorer, [completion(i) for i in range(start, start + 4)])
        assert outcome(scores, start) == Scored(start + 1.0)
    assert len(server.opens) == 2
    assert scorer.counters() == ProtocolCounters()


def test_another_description_after_a_break_is_what_counts_from_then_on(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    def cut(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened()
        results = length_results(next(requests).batch)
        server.description = info(
            pb.Reward(name="length", scope=pb.Reward.SCOPE_COMPLETION, min_value=0.0, max_value=3.0)
        )
        yield frame(results[:2])

    server = serve(cut, well_behaved)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(5)])
    assert [outcome(scores, i) for i in range(3)] == [Scored(1.0), Scored(2.0), Scored(3.0)]
    assert all(isinstance(outcome(scores, i), Failed) for i in (3, 4))
    assert scorer.counters() == ProtocolCounters(breaks=1, resends=1, out_of_range=2)


def test_a_reward_that_vanishes_from_the_description_ends_the_server(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    def cut(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened()
        next(requests)
        server.description = info(pb.Reward(name="height"))

    server = serve(cut, well_behaved)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0)])
    found = outcome(scores, 0)
    assert isinstance(found, Failed)
    assert "no reward 'length'" in found.message
    assert "no reward 'length'" in (scorer.pause_reason() or "")


@pytest.mark.parametrize("trouble", ["delays", "slices", "cuts", "goes silent"])
def test_over_a_bad_network_every_score_arrives(
    serve_process: ServeProcess, make_scorer: MakeScorer, trouble: Trouble
) -> None:
    server = serve_process("--window", "16")
    with bad_network(server.port, trouble) as network:
        scorer = make_scorer(
            target(f"127.0.0.1:{network.port}", timeout_seconds=1.0), client_grace_seconds=0.5
        )
        total = 200
        scores = score_all(scorer, [completion(i, "x" * (100 + i)) for i in range(total)])
        assert [outcome(scores, i) for i in range(total)] == [Scored(100.0 + i) for i in range(total)]
        counters = scorer.counters()
        assert counters.protocol_errors - counters.late - counters.unfinished == 0
        assert network.connections == 1 or trouble in ("cuts", "goes silent")
        scorer.close(1.0)


def test_each_reward_is_tried_as_often_as_the_job_says(serve: Serve, make_scorer: MakeScorer) -> None:
    """Two rewards of one server, one of them tried once and one three times; what is invalid, never again."""

    def busy(batch: pb.Batch) -> Answers:
        results = [
            pb.Result(batch_id=batch.batch_id, completion_id=c.completion_id, reward_key=key)
            for c in completions_of(batch)
            for key in batch.reward_keys or ("once", "thrice", "invalid")
        ]
        for result in results:
            result.failure.code = (
                pb.Failure.CODE_INVALID if result.reward_key == "invalid" else pb.Failure.CODE_UNAVAILABLE
            )
            result.failure.retry_delay.FromMilliseconds(1)
            asked[result.reward_key] += 1
        yield frame(results)
        yield done(results)

    asked: Counter[str] = Counter()
    server = serve(each_batch(busy))
    rewards = {"once": 1, "thrice": 3, "invalid": 5}
    targets = [
        tried.model_copy(update={"binding": tried.binding.model_copy(update={"max_attempts": attempts})})
        for name, attempts in rewards.items()
        for tried in [target(server.address, name=name)]
    ]
    scorer = make_scorer(*targets)
    scores = score_all(scorer, [completion(0)])["1-0"].outcomes
    assert asked == {"once": 1, "thrice": 3, "invalid": 1}
    assert {name: one.outcome.code.value for name, one in scores.items()} == {  # type: ignore[union-attr]
        "once": "unavailable",
        "thrice": "unavailable",
        "invalid": "invalid",
    }


def test_the_time_for_tries_is_the_jobs(serve: Serve, make_scorer: MakeScorer) -> None:
    def in_a_while(batch: pb.Batch) -> Answers:
        result = length_results(batch)[0]
        result.failure.code = pb.Failure.CODE_UNAVAILABLE
        result.failure.retry_delay.FromSeconds(5)
        yield frame([result])
        yield done([result])

    server = serve(each_batch(in_a_while))
    scorer = make_scorer(target(server.address), retry_seconds=2.0)
    assert isinstance(outcome(score_all(scorer, [completion(0)]), 0), Failed)
    assert len(server.batches) == 1  # 5 s would have been too late
