"""One of several replicas is broken and answers at once: the others get the work, and all is scored."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import grpc
import pytest
from scoring_helpers import WAIT_SECONDS, completion, eventually, score_all, submit_all, target
from scoring_servers import (
    Answers,
    Requests,
    Script,
    ScriptedServer,
    completions_of,
    done,
    each_batch,
    frame,
    info,
    length_results,
    opened,
)

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring import RewardScorer
from plaudit.types.scoring import Failed, FailureCode, Scored

Serve = Callable[..., ScriptedServer]
MakeScorer = Callable[..., RewardScorer]

WINDOW = 64
COMPLETIONS = 800
RANGED = pb.Reward(name="length", scope=pb.Reward.SCOPE_COMPLETION, min_value=0.0, max_value=1000.0)


def answering(mend: Callable[[pb.Result], None]) -> Script:
    """Answers every batch at once, each result spoilt by `mend`."""

    def answer(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        for result in results:
            mend(result)
        yield frame(results)
        yield done(results)

    return each_batch(answer, window=WINDOW)


def failing(code: pb.Failure.Code) -> Script:
    return answering(lambda result: result.failure.CopyFrom(pb.Failure(code=code, message="no GPU")))


def breaking(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
    yield opened(WINDOW)
    next(requests)
    context.abort(grpc.StatusCode.INTERNAL, "out of memory")


def out_of_range(result: pb.Result) -> None:
    result.score.value = -1.0


def with_a_wrong_id(result: pb.Result) -> None:
    result.completion_id = f"9{result.completion_id}"


healthy = answering(lambda result: None)


def named(name: str) -> pb.GetServerInfoResponse:
    """A description that tells one replica from the other."""
    return info(RANGED, server_version=name)


def both_are_there(scorer: RewardScorer) -> bool:
    return scorer.server_versions() == {"scripted": "bad, good"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(failing(pb.Failure.CODE_INTERNAL), id="internal"),
        pytest.param(failing(pb.Failure.CODE_UNAVAILABLE), id="unavailable"),
        pytest.param(answering(out_of_range), id="out_of_range"),
        pytest.param(answering(with_a_wrong_id), id="wrong_ids"),
        pytest.param(breaking, id="breaks"),
    ],
)
def test_a_broken_replica_gets_little_of_the_work_and_all_is_scored(
    script: Script, serve: Serve, make_scorer: MakeScorer
) -> None:
    bad, good = serve(script, description=named("bad")), serve(healthy, description=named("good"))
    scorer = make_scorer(target(bad.address, good.address))
    eventually(lambda: both_are_there(scorer))

    def is_found_out() -> bool:
        scores = score_all(scorer, [completion(i, "x" * (i % 97)) for i in range(COMPLETIONS)])
        outcomes = [scores[f"1-{i}"].outcomes["length"].outcome for i in range(COMPLETIONS)]
        assert outcomes == [Scored(float(i % 97)) for i in range(COMPLETIONS)]
        return scorer.counters().set_aside > 0

    eventually(is_found_out)
    assert is_found_out()
    # A window or three until it shows, and what it is tried with now and then.
    assert sum(len(completions_of(batch)) for batch in bad.batches) <= 3 * WINDOW


def test_a_replica_that_is_mended_is_taken_back_and_meanwhile_told_of(
    serve: Serve, make_scorer: MakeScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaudit.scoring._outliers.FIRST_SECONDS", 0.2)
    monkeypatch.setattr("plaudit.scoring._outliers.MOST_SECONDS", 0.4)
    is_mended, may_answer = threading.Event(), threading.Event()
    may_answer.set()

    def at_first_broken(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        if not is_mended.is_set():
            for result in results:
                result.failure.code = pb.Failure.CODE_INTERNAL
        yield frame(results)
        yield done(results)

    def held_up(batch: pb.Batch) -> Answers:
        may_answer.wait(WAIT_SECONDS)
        yield frame(length_results(batch))
        yield done(length_results(batch))

    bad = serve(each_batch(at_first_broken), description=named("bad"))
    good = serve(each_batch(held_up), description=named("good"))
    scorer = make_scorer(target(bad.address, good.address))
    eventually(lambda: both_are_there(scorer))
    rounds = itertools.count(1)

    def score_some() -> int:
        """Scores some, and returns how many batches of them the bad one got."""
        before, number = len(bad.batches), next(rounds)
        scores = score_all(scorer, [completion(1000 * number + i, "x") for i in range(64)])
        assert all(one.outcomes["length"].outcome == Scored(1.0) for one in scores.values())
        return len(bad.batches) - before

    eventually(lambda: score_some() and scorer.counters().set_aside)
    may_answer.clear()
    ids = submit_all(scorer, [completion(i) for i in range(16)])
    eventually(lambda: f"replica {bad.address} is set aside: 100%" in scorer.status_detail())
    is_mended.set()
    may_answer.set()
    assert scorer.wait(ids, WAIT_SECONDS)
    eventually(lambda: score_some() and score_some())


def test_what_every_replica_fails_is_tried_on_each_once_and_sets_none_aside(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    servers = [serve(failing(pb.Failure.CODE_INTERNAL), description=named(name)) for name in ("bad", "good")]
    scorer = make_scorer(target(*(server.address for server in servers)))
    eventually(lambda: both_are_there(scorer))
    scores = score_all(scorer, [completion(i) for i in range(16)])
    told = {one.outcomes["length"].outcome for one in scores.values()}
    addresses = [server.address for server in servers]
    assert told <= {
        Failed(FailureCode.INTERNAL, f"no GPU (replica {address}) (sent 2 times)") for address in addresses
    }
    sent = [sorted(c.completion_id for b in s.batches for c in completions_of(b)) for s in servers]
    assert sent[0] == sent[1] == sorted(f"1-{i}" for i in range(16))
    assert scorer.counters().set_aside == 0


def test_a_retry_that_waits_for_another_replica_holds_up_nothing_else(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    may_answer = threading.Event()

    def at_first_busy(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        if len(bad.batches) == 1:
            for result in results:
                result.failure.code = pb.Failure.CODE_UNAVAILABLE
        yield frame(results)
        yield done(results)

    def held_up(batch: pb.Batch) -> Answers:
        may_answer.wait(WAIT_SECONDS)
        yield frame(length_results(batch))
        yield done(length_results(batch))

    bad = serve(each_batch(at_first_busy), description=named("bad"))
    good = serve(each_batch(held_up, window=4), description=named("good"))
    scorer = make_scorer(target(bad.address, good.address))
    eventually(lambda: both_are_there(scorer))
    first = submit_all(scorer, [completion(i) for i in range(8)])
    eventually(lambda: scorer.counters().retries == 4)
    score_all(scorer, [completion(100 + i) for i in range(8)])  # by the other one alone
    may_answer.set()
    assert scorer.wait(first, WAIT_SECONDS)
    failed = [c.completion_id for c in completions_of(bad.batches[0])]
    # Together, though there are two replicas that take work.
    assert [c.completion_id for c in completions_of(good.batches[1])] == failed
