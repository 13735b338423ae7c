"""Servers that answer wrongly: what is wrong is counted, and never becomes a reward."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
from scoring_helpers import completion, eventually, score_all, submit_all, target
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
    well_behaved,
)

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring import ProtocolCounters, RewardScorer
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored

Serve = Callable[..., ScriptedServer]
MakeScorer = Callable[..., RewardScorer]

GROUP = pb.Reward(name="length", scope=pb.Reward.SCOPE_GROUP)
RANGED = pb.Reward(name="length", scope=pb.Reward.SCOPE_COMPLETION, min_value=0.0, max_value=5.0)


def result(batch: pb.Batch, completion_id: str, *, key: str = "length", **outcome: object) -> pb.Result:
    return pb.Result(batch_id=batch.batch_id, completion_id=completion_id, reward_key=key, **outcome)


def test_a_missing_result_is_asked_for_again(serve: Serve, make_scorer: MakeScorer) -> None:
    def forgetful(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        kept = results[1:] if len(server.batches) == 1 else results
        yield frame(kept)
        yield done(kept)

    server = serve(each_batch(forgetful))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(5)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0)
    first, second = server.batches
    assert [c.completion_id for c in completions_of(second)] == ["1-0"]
    assert first.batch_id != second.batch_id
    assert scorer.counters() == ProtocolCounters(missing=1, miscounted=1, retries=1)


def test_a_result_that_never_comes_is_a_failure(serve: Serve, make_scorer: MakeScorer) -> None:
    def forgetful(batch: pb.Batch) -> Answers:
        kept = [r for r in length_results(batch) if r.completion_id != "1-0"]
        if kept:
            yield frame(kept)
        yield done(kept, batch.batch_id)

    server = serve(each_batch(forgetful))
    scorer = make_scorer(target(server.address), max_attempts=2)
    scores = score_all(scorer, [completion(i) for i in range(3)])
    outcome = scores["1-0"].outcomes["length"].outcome
    assert outcome == Failed(
        FailureCode.INTERNAL, "the reward server ended the batch without a result (sent 2 times)"
    )
    assert scores["1-1"].outcomes["length"].outcome == Scored(2.0)
    assert scorer.counters().missing == 2


def test_unknown_ids_are_counted_and_left_out(serve: Serve, make_scorer: MakeScorer) -> None:
    def inventive(batch: pb.Batch) -> Answers:
        strays = [
            result(batch, "9-9", score=pb.Score(value=7)),
            result(batch, "1-0", key="height", score=pb.Score(value=7)),
            pb.Result(batch_id="nobody", completion_id="1-0", reward_key="length", score=pb.Score(value=7)),
        ]
        yield frame([*strays, *length_results(batch)])
        yield done(length_results(batch))
        yield pb.ScoreResponse(done=pb.BatchDone(batch_id="nobody"))

    server = serve(each_batch(inventive))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0)
    eventually(lambda: scorer.counters() == ProtocolCounters(unknown=4))


def test_the_first_of_doubled_results_wins(serve: Serve, make_scorer: MakeScorer) -> None:
    def twice(batch: pb.Batch) -> Answers:
        yield frame([result(batch, "1-0", score=pb.Score(value=1.0)) for _ in range(2)])
        yield frame([result(batch, "1-0", score=pb.Score(value=0.2))])
        yield frame([result(batch, "1-0", failure=pb.Failure(code=pb.Failure.CODE_INTERNAL))])
        yield frame([result(batch, "1-1", not_applicable=pb.NotApplicable())])
        yield frame([result(batch, "1-1", score=pb.Score(value=1.0))])
        yield pb.ScoreResponse(
            done=pb.BatchDone(batch_id=batch.batch_id, scored_count=1, not_applicable_count=1)
        )

    server = serve(each_batch(twice))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0)
    assert scores["1-1"].outcomes["length"].outcome == NotApplicable()
    eventually(lambda: scorer.counters() == ProtocolCounters(doubled=4, differing=1))


@pytest.mark.parametrize(
    ("value", "counter", "words"),
    [
        (math.nan, "non_finite", "nan"),
        (math.inf, "non_finite", "inf"),
        (1e308, "out_of_range", "1e+308"),
        (5.0001, "out_of_range", "0 to 5"),
        (-1e-9, "out_of_range", "0 to 5"),
    ],
)
def test_a_value_that_is_no_reward_is_a_failure(
    serve: Serve, make_scorer: MakeScorer, value: float, counter: str, words: str
) -> None:
    def wild(batch: pb.Batch) -> Answers:
        results = [result(batch, "1-0", score=pb.Score(value=value)), *length_results(batch)[1:]]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(wild), description=info(RANGED))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    outcome = scores["1-0"].outcomes["length"].outcome
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.INTERNAL
    assert words in outcome.message
    assert scores["1-1"].outcomes["length"].outcome == Scored(2.0)
    assert scorer.counters() == ProtocolCounters(**{counter: 1})


def test_a_huge_value_is_refused_where_the_reward_has_no_range(serve: Serve, make_scorer: MakeScorer) -> None:
    values = {"1-0": 1e6, "1-1": -1e6, "1-2": 1.0001e6, "1-3": 1e308}

    def wild(batch: pb.Batch) -> Answers:
        results = [
            result(batch, c.completion_id, score=pb.Score(value=values[c.completion_id]))
            for c in completions_of(batch)
        ]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(wild))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(4)])
    outcomes = [scores[f"1-{i}"].outcomes["length"].outcome for i in range(4)]
    assert outcomes[:2] == [Scored(1e6), Scored(-1e6)]
    assert all(isinstance(outcome, Failed) for outcome in outcomes[2:])


def test_a_valid_answer_after_an_invalid_one_counts(serve: Serve, make_scorer: MakeScorer) -> None:
    def second_thoughts(batch: pb.Batch) -> Answers:
        yield frame([result(batch, "1-0", score=pb.Score(value=math.nan)), result(batch, "1-0")])
        yield frame([result(batch, "1-0", score=pb.Score(value=3.0))])
        yield pb.ScoreResponse(done=pb.BatchDone(batch_id=batch.batch_id, scored_count=1))

    server = serve(each_batch(second_thoughts))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(3.0)
    assert scorer.counters() == ProtocolCounters(non_finite=1, empty=1)


def lying(batch: pb.Batch) -> pb.Results:
    """Of eight: 0 twice with two values, 4 wrong at first, 5 out of range, 6 missing; and strays."""

    def score(index: int | str, value: float, **other: str) -> pb.Result:
        ids = {"batch_id": batch.batch_id, "completion_id": f"1-{index}", "reward_key": "length", **other}
        return pb.Result(**ids, score=pb.Score(value=value))

    return pb.Results(
        results=[
            *[score(i, float(i) / 2) for i in (0, 1, 2, 3)],
            score(0, 0.25),
            score("stray", 1.0),
            score(1, 1.0, reward_key="height"),
            score(2, 1.0, batch_id="nobody"),
            score(4, math.nan),
            score(4, 2.0),
            score(5, 5.5),
            score(7, 3.5),
        ]
    )


def as_plain(results: pb.Results) -> pb.Results:
    """The same, in the form in which many scores travel together."""
    plain: dict[tuple[str, str], pb.PlainScores] = {}
    for one in results.results:
        place = one.batch_id, one.reward_key
        block = plain.setdefault(place, pb.PlainScores(batch_id=place[0], reward_key=place[1]))
        block.completion_ids.append(one.completion_id)
        block.values.append(one.score.value)
    return pb.Results(plain_scores=plain.values())


@pytest.mark.parametrize("form", [lambda results: results, as_plain], ids=["results", "plain_scores"])
def test_scores_that_travel_together_are_believed_no_more_than_others(
    serve: Serve, make_scorer: MakeScorer, form: Callable[[pb.Results], pb.Results]
) -> None:
    def answer(batch: pb.Batch) -> Answers:
        yield pb.ScoreResponse(results=form(lying(batch)))
        yield pb.ScoreResponse(done=pb.BatchDone(batch_id=batch.batch_id, scored_count=8))

    server = serve(each_batch(answer), description=info(RANGED))
    scorer = make_scorer(target(server.address), max_attempts=1)
    assert scorer.wait_ready(10)
    ids = submit_all(scorer, [completion(i) for i in range(8)])
    assert scorer.wait(ids, 20)
    outcomes = [s.outcomes["length"].outcome for s in scorer.take(ids).values()]
    assert server.opens[0].reads_plain_scores
    assert [o.value if isinstance(o, Scored) else None for o in outcomes] == [
        *(0.0, 0.5, 1.0, 1.5, 2.0),
        *(None, None, 3.5),
    ]
    assert "5.5" in str(outcomes[5])
    assert "without a result" in str(outcomes[6])
    eventually(
        lambda: (
            scorer.counters()
            == ProtocolCounters(unknown=3, doubled=1, differing=1, non_finite=1, out_of_range=1, missing=1)
        )
    )


def test_scores_that_are_not_as_many_as_their_ids_are_nobodys(serve: Serve, make_scorer: MakeScorer) -> None:
    def answer(batch: pb.Batch) -> Answers:
        (block,) = as_plain(pb.Results(results=length_results(batch))).plain_scores
        if len(server.batches) == 1:
            del block.values[1]
        yield pb.ScoreResponse(results=pb.Results(plain_scores=[block]))
        yield pb.ScoreResponse(
            done=pb.BatchDone(batch_id=batch.batch_id, scored_count=len(block.completion_ids))
        )

    server = serve(each_batch(answer))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(3)])
    for one in scores.values():
        assert one.outcomes["length"].outcome == Failed(
            FailureCode.INTERNAL,
            "the reward server sent a result without an outcome, or uneven plain_scores",
        )
    assert scorer.counters() == ProtocolCounters(empty=3)
    scores = score_all(scorer, [completion(i) for i in range(3)])
    assert [s.outcomes["length"].outcome for s in scores.values()] == [Scored(1.0), Scored(2.0), Scored(3.0)]


def test_two_rewards_of_a_completion_may_travel_in_two_forms(serve: Serve, make_scorer: MakeScorer) -> None:
    def answer(batch: pb.Batch) -> Answers:
        results = pb.Results(results=length_results(batch, ["a"]))
        if len(server.batches) == 1:
            results.results[0].failure.code = pb.Failure.CODE_UNAVAILABLE
        together = as_plain(pb.Results(results=length_results(batch, ["b"])))
        results.plain_scores.extend(together.plain_scores)
        yield pb.ScoreResponse(results=results)
        yield pb.ScoreResponse(
            done=pb.BatchDone(batch_id=batch.batch_id, scored_count=2 * len(completions_of(batch)))
        )

    server = serve(each_batch(answer))
    scorer = make_scorer(target(server.address, name="a"), target(server.address, name="b"))
    scores = score_all(scorer, [completion(i) for i in range(5)])
    for i in range(5):
        assert [scores[f"1-{i}"].outcomes[name].outcome for name in "ab"] == [Scored(i + 1.0)] * 2
    assert [len(completions_of(batch)) for batch in server.batches] == [5, 1]
    assert list(server.batches[1].reward_keys) == ["a"]


def test_counts_that_do_not_add_up_are_noted(serve: Serve, make_scorer: MakeScorer) -> None:
    def miscounting(batch: pb.Batch) -> Answers:
        yield frame(length_results(batch))
        yield pb.ScoreResponse(done=pb.BatchDone(batch_id=batch.batch_id, scored_count=99))

    server = serve(each_batch(miscounting))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0)
    eventually(lambda: scorer.counters() == ProtocolCounters(miscounted=1))


def test_unavailable_is_tried_again_after_the_delay_that_was_asked_for(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE, message="the judge is busy")
    failure.retry_delay.FromMilliseconds(400)

    def busy_at_first(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        if len(server.batches) == 1:
            results = [
                r if index % 2 else result(batch, r.completion_id, failure=failure)
                for index, r in enumerate(results)
            ]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(busy_at_first))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(6)])
    assert all(scores[f"1-{i}"].outcomes["length"].outcome == Scored(i + 1.0) for i in range(6))
    again = [c.completion_id for batch in server.batches[1:] for c in completions_of(batch)]
    assert again == ["1-0", "1-2", "1-4"]
    assert len(server.batches) == 2  # what failed together travels together
    assert server.batch_times[1] - server.batch_times[0] >= 0.4
    assert scorer.counters() == ProtocolCounters(retries=3)


def test_tries_are_bounded(serve: Serve, make_scorer: MakeScorer) -> None:
    def busy(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE, message="busy")
        results = [result(batch, c.completion_id, failure=failure) for c in completions_of(batch)]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(busy))
    scorer = make_scorer(target(server.address), max_attempts=3)
    scores = score_all(scorer, [completion(0)])
    assert scores["1-0"].outcomes["length"].outcome == Failed(FailureCode.UNAVAILABLE, "busy (sent 3 times)")
    assert len(server.batches) == 3


def test_a_delay_beyond_the_budget_is_not_waited_for(serve: Serve, make_scorer: MakeScorer) -> None:
    def for_an_hour(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE, message="quota")
        failure.retry_delay.FromSeconds(3600)
        results = [result(batch, "1-0", failure=failure)]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(for_an_hour))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0)])
    assert scores["1-0"].outcomes["length"].outcome == Failed(FailureCode.UNAVAILABLE, "quota")


def test_a_retry_has_what_is_left_of_the_budget(serve: Serve, make_scorer: MakeScorer) -> None:
    def busy_at_first(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        if len(server.batches) == 1:
            failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE)
            results = [result(batch, "1-0", failure=failure)]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(busy_at_first))
    scorer = make_scorer(target(server.address, timeout_seconds=20.0), retry_seconds=10.0)
    score_all(scorer, [completion(0)])
    first, second = (batch.timeout.ToTimedelta().total_seconds() for batch in server.batches)
    assert first == 20.0
    assert 1.0 < second < 10.0


@pytest.mark.parametrize("code", ["CODE_INVALID", "CODE_INTERNAL", "CODE_UNSPECIFIED", "CODE_LIMIT_EXCEEDED"])
def test_a_failure_that_no_retry_mends_is_accepted(serve: Serve, make_scorer: MakeScorer, code: str) -> None:
    def failing(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.Code.Value(code), message="so it is")
        results = [result(batch, "1-0", failure=failure), *length_results(batch)[1:]]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(failing))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    word = "internal" if code == "CODE_UNSPECIFIED" else code.removeprefix("CODE_").lower()
    assert scores["1-0"].outcomes["length"].outcome == Failed(FailureCode(word), "so it is")
    assert scores["1-1"].outcomes["length"].outcome == Scored(2.0)
    assert len(server.batches) == 1
    assert scorer.pause_reason() is None


def test_a_spent_budget_is_a_reason_to_pause(serve: Serve, make_scorer: MakeScorer) -> None:
    def spent(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.CODE_EXHAUSTED, message="10 EUR are spent")
        failure.retry_delay.FromSeconds(0)
        results = [result(batch, c.completion_id, failure=failure) for c in completions_of(batch)]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(spent))
    scorer = make_scorer(target(server.address, server="judge"))
    scores = score_all(scorer, [completion(0), completion(1)])
    assert scores["1-0"].outcomes["length"].outcome == Failed(FailureCode.EXHAUSTED, "10 EUR are spent")
    assert len(server.batches) == 1
    assert scorer.pause_reason() == 'reward server "judge", reward "length": 10 EUR are spent'


def test_an_unanswered_batch_is_given_up_tried_once_more_and_what_still_comes_is_late(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    def script(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened()
        held: dict[str, pb.Batch] = {}
        for request in requests:
            if request.HasField("batch"):
                held[request.batch.batch_id] = request.batch
            if request.HasField("cancel"):
                results = length_results(held.pop(request.cancel.batch_id))
                yield frame(results)
                yield done(results)

    server = serve(script)
    scorer = make_scorer(target(server.address, timeout_seconds=0.2), client_grace_seconds=0.1)
    scores = score_all(scorer, [completion(0), completion(1)])
    for one in scores.values():
        assert one.outcomes["length"].outcome == Failed(
            FailureCode.TIMEOUT, "no answer within 0.2 s, nor in the grace after (sent 2 times)"
        )
    eventually(lambda: server.cancels == [batch.batch_id for batch in server.batches])
    assert len(server.batches) == 2
    eventually(lambda: scorer.counters() == ProtocolCounters(late=4, retries=2))
    assert len(server.opens) == 1  # the stream lives on


def test_a_server_that_answers_nothing_any_more_is_left_for_a_new_stream(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    def hung(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened(2)
        for _ in requests:
            pass

    server = serve(hung, well_behaved)
    scorer = make_scorer(target(server.address, timeout_seconds=0.2), client_grace_seconds=0.1)
    scores = score_all(scorer, [completion(i) for i in range(6)])
    assert len(server.opens) == 2
    assert scores["1-5"].outcomes["length"].outcome == Scored(6.0)
    assert server.opens[0].session_id == server.opens[1].session_id


def test_a_group_is_tried_again_whole(serve: Serve, make_scorer: MakeScorer) -> None:
    def one_fails_at_first(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        if len(server.batches) == 1:
            failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE)
            results[2] = result(batch, results[2].completion_id, failure=failure)
        else:
            # Ranks may differ the second time; the first accepted ones stay.
            for one in results:
                one.score.value = 100.0
        yield frame(results)
        yield done(results)

    group_reward = pb.Reward(name="length", scope=pb.Reward.SCOPE_GROUP, deterministic=True)
    server = serve(each_batch(one_fails_at_first), description=info(group_reward))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(4)], group_size=4)
    assert [len(completions_of(batch)) for batch in server.batches] == [4, 4]
    assert [scores[f"1-{i}"].outcomes["length"].outcome for i in range(4)] == [
        Scored(1.0),
        Scored(2.0),
        Scored(100.0),
        Scored(4.0),
    ]
    # It calls itself deterministic, and three values changed.
    assert scorer.counters() == ProtocolCounters(retries=1, differing=3)


def test_a_group_that_never_becomes_whole_ends(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(description=info(GROUP))
    scorer = make_scorer(target(server.address), retry_seconds=0.5)
    ids = submit_all(scorer, [completion(i) for i in range(3)], group_size=4)
    assert scorer.wait(ids, 10)
    outcome = scorer.take(ids)["1-0"].outcomes["length"].outcome
    assert outcome == Failed(FailureCode.INVALID, "its group of 4 completions never became whole")
    assert server.batches == []


def test_a_refused_batch_is_sent_again_in_parts(serve: Serve, make_scorer: MakeScorer) -> None:
    def picky(batch: pb.Batch) -> Answers:
        if any(len(c.text) == 3 for c in completions_of(batch)):
            failure = pb.Failure(code=pb.Failure.CODE_INVALID, message="three is not allowed")
            yield pb.ScoreResponse(rejected=pb.BatchRejected(batch_id=batch.batch_id, failure=failure))
            return
        yield frame(length_results(batch))
        yield done(length_results(batch))

    server = serve(each_batch(picky))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(5)])
    assert scores["1-2"].outcomes["length"].outcome == Failed(FailureCode.INVALID, "three is not allowed")
    for index in (0, 1, 3, 4):
        assert scores[f"1-{index}"].outcomes["length"].outcome == Scored(index + 1.0)
    assert scorer.counters() == ProtocolCounters(rejected=2)


def test_a_conflict_is_mended_by_a_new_batch_id(serve: Serve, make_scorer: MakeScorer) -> None:
    def conflicted(batch: pb.Batch) -> Answers:
        if len(server.batches) == 1:
            failure = pb.Failure(code=pb.Failure.CODE_CONFLICT)
            yield pb.ScoreResponse(rejected=pb.BatchRejected(batch_id=batch.batch_id, failure=failure))
            return
        yield frame(length_results(batch))
        yield done(length_results(batch))

    server = serve(each_batch(conflicted))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    assert scores["1-1"].outcomes["length"].outcome == Scored(2.0)
    assert server.batches[0].batch_id != server.batches[1].batch_id


def test_two_servers_one_of_which_fails_a_third(serve: Serve, make_scorer: MakeScorer) -> None:
    def failing_a_third(batch: pb.Batch) -> Answers:
        results = [
            result(batch, c.completion_id, failure=pb.Failure(code=pb.Failure.CODE_INTERNAL, message="bug"))
            if len(c.text) % 3 == 0
            else result(batch, c.completion_id, score=pb.Score(value=0.5))
            for c in completions_of(batch)
        ]
        yield frame(results)
        yield done(results)

    good, bad = serve(), serve(each_batch(failing_a_third), description=info(LENGTH, server_version="2"))
    scorer = make_scorer(
        target(good.address, server="good"),
        target(bad.address, server="bad", name="length_again"),
    )
    # The bad one answers under the session's key, as it must.
    scores = score_all(scorer, [completion(i) for i in range(3)])
    assert all(isinstance(s.outcomes["length"].outcome, Scored) for s in scores.values())
    assert scorer.counters_by_server()["good"] == ProtocolCounters()
    assert scorer.counters_by_server()["bad"].unknown > 0
    assert scorer.server_versions() == {"good": "1.0", "bad": "2"}


def test_taking_while_a_failure_waits_for_its_siblings(serve: Serve, make_scorer: MakeScorer) -> None:
    def one_of_two(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE)
        yield frame([result(batch, "1-0", key="a", failure=failure)])

    server = serve(each_batch(one_of_two))
    scorer = make_scorer(target(server.address, name="a"), target(server.address, name="b"))
    ids = submit_all(scorer, [completion(0)])
    assert not scorer.wait(ids, 0.2)
    scores = scorer.take(ids)["1-0"].outcomes
    assert [scores[name].outcome.code for name in ("a", "b")] == [FailureCode.TIMEOUT] * 2
    assert len(server.opens) == 1
    ids = submit_all(scorer, [completion(1)])
    eventually(lambda: len(server.batches) == 2)
    assert scorer.counters().retries == 0


def test_taking_one_of_a_group_leaves_the_others_under_way(serve: Serve, make_scorer: MakeScorer) -> None:
    taken = threading.Event()

    def slowly(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE)
        results[0] = result(batch, "1-0", failure=failure)
        yield frame(results[:1])
        taken.wait(20)
        yield frame(results[1:])
        yield done(results)

    server = serve(each_batch(slowly), description=info(GROUP))
    scorer = make_scorer(target(server.address), max_attempts=1)
    ids = submit_all(scorer, [completion(i) for i in range(3)], group_size=3)
    eventually(lambda: server.batches)
    assert not scorer.wait(ids, 0.2)
    scorer.take(ids[:1])
    taken.set()
    assert scorer.wait(ids[1:], 20)
    scores = scorer.take(ids[1:])
    assert scores["1-2"].outcomes["length"].outcome == Scored(3.0)
    assert scorer.counters() == ProtocolCounters()


FAR = 2**62
"""Seconds: far beyond what google.protobuf.Duration allows, and fit for the field."""


def test_a_retry_delay_out_of_range_ends_with_the_failure(serve: Serve, make_scorer: MakeScorer) -> None:
    def for_ever(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE, message="quota")
        failure.retry_delay.seconds = FAR
        results = length_results(batch)
        results[0] = result(batch, "1-0", failure=failure)
        yield frame(results)
        yield done(results)

    server = serve(each_batch(for_ever))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    assert scores["1-0"].outcomes["length"].outcome == Failed(FailureCode.UNAVAILABLE, "quota")
    assert scores["1-1"].outcomes["length"].outcome == Scored(2.0)
    assert scorer.counters() == ProtocolCounters(mistimed=1)


def test_a_grace_and_a_retention_out_of_range_and_a_second_opened_are_counted(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    def script(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened()
        yield opened(window=1)
        batch = next(requests).batch
        draining = pb.ScoreResponse(draining=pb.Draining())
        draining.draining.grace.seconds = FAR
        yield draining
        yield frame(length_results(batch))
        yield done(length_results(batch))

    description = info()
    description.capabilities.result_retention.seconds = -FAR
    server = serve(script, well_behaved, description=description)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    assert [scores[f"1-{i}"].outcomes["length"].outcome for i in (0, 1)] == [Scored(1.0), Scored(2.0)]
    # The retention is told anew at each connection.
    counters = scorer.counters()
    assert (counters.reopened, counters.mistimed >= 2) == (1, True)


def test_an_error_in_the_middle_of_a_frame_leaves_no_completion_without_an_end(
    serve: Serve, make_scorer: MakeScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(message: pb.Failure) -> Failed:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("plaudit.scoring._join.failed", raises)

    def unavailable(batch: pb.Batch) -> Answers:
        results = [
            result(batch, c.completion_id, failure=pb.Failure(message="?")) for c in completions_of(batch)
        ]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(unavailable))
    scorer = make_scorer(target(server.address), retry_seconds=1.0)
    outcome = score_all(scorer, [completion(0)])["1-0"].outcomes["length"].outcome
    assert isinstance(outcome, Failed)


def test_a_completion_that_got_lost_within_is_failed(
    serve: Serve, make_scorer: MakeScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaudit.scoring._server._SEARCH_SECONDS", 0.1)
    monkeypatch.setattr("plaudit.scoring._retrying.Retries.put", lambda *_: None)

    def unavailable(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE)
        results = [result(batch, "1-0", failure=failure), *length_results(batch)[1:]]
        yield frame(results)
        yield done(results)

    server = serve(each_batch(unavailable))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    lost = scores["1-0"].outcomes["length"].outcome
    assert isinstance(lost, Failed)
    assert "lost track of it" in lost.message
    assert scores["1-1"].outcomes["length"].outcome == Scored(2.0)


def test_frames_that_cannot_be_read_are_told_as_such(serve: Serve, make_scorer: MakeScorer) -> None:
    def too_much(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened()
        batch = next(requests).batch
        yield frame([result(batch, "x" * 17 * 2**20)])
        yield from ()

    server = serve(too_much, description=info())
    scorer = make_scorer(target(server.address), retry_seconds=2.5)
    outcome = score_all(scorer, [completion(0)])["1-0"].outcomes["length"].outcome
    assert isinstance(outcome, Failed)
    assert "it sent a frame of more than 16 MiB" in outcome.message
    assert "could not be reached" not in outcome.message
    assert scorer.counters().unreadable >= 2


def test_the_replica_that_fails_is_named_where_there_are_several(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    def broken(batch: pb.Batch) -> Answers:
        failure = pb.Failure(code=pb.Failure.CODE_INTERNAL, message="boom")
        results = [result(batch, c.completion_id, failure=failure) for c in completions_of(batch)]
        yield frame(results)
        yield done(results)

    servers = [serve(each_batch(broken)), serve(each_batch(broken))]
    scorer = make_scorer(target(*(server.address for server in servers)))
    scores = score_all(scorer, [completion(i) for i in range(16)])
    told = [scores[f"1-{i}"].outcomes["length"].outcome for i in range(16)]
    for outcome in told:
        assert isinstance(outcome, Failed)
        assert any(outcome.message.startswith(f"boom (replica {s.address})") for s in servers)
