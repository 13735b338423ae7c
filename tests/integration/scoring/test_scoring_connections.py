"""Connections that break, servers that go away, come late, never answer, or will never do."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from scoring_helpers import (
    WAIT_SECONDS,
    ServerProcess,
    completion,
    eventually,
    free_port,
    score_all,
    submit_all,
    target,
)
from scoring_servers import (
    LENGTH,
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
    well_behaved,
)

from plaudit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    PlauditError,
    UnauthenticatedError,
)
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import status_of
from plaudit.scoring import ProtocolCounters, RewardScorer
from plaudit.types.scoring import Failed, FailureCode, Scored

Serve = Callable[..., ScriptedServer]
ServeProcess = Callable[..., ServerProcess]
MakeScorer = Callable[..., RewardScorer]


def abort(code: grpc.StatusCode, message: str = "on purpose") -> Script:
    """A script that ends the stream with this status at once."""

    def script(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        context.abort(code, message)
        yield opened()

    return script


def cut_after(results: int, *, cleanly: bool = False) -> Script:
    """A script that sends so many results of the first batch and then ends the stream."""

    def script(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened()
        batch = next(requests).batch
        for result in length_results(batch)[:results]:
            yield frame([result])
        if not cleanly:
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    return script


@pytest.mark.parametrize("cleanly", [False, True])
def test_a_cut_stream_is_resumed_and_the_batch_sent_again(
    serve: Serve, make_scorer: MakeScorer, cleanly: bool
) -> None:
    server = serve(cut_after(3, cleanly=cleanly), well_behaved)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(8)])
    assert all(scores[f"1-{i}"].outcomes["length"].outcome == Scored(i + 1.0) for i in range(8))
    first, second = server.opens
    assert first.session_id == second.session_id
    assert list(second.pending_batch_ids) == [server.batches[0].batch_id]
    assert server.batches[0] == server.batches[1]
    assert scorer.counters() == ProtocolCounters(breaks=1, resends=1)


def test_what_the_server_retained_is_not_sent_again(serve: Serve, make_scorer: MakeScorer) -> None:
    def replaying(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened(retained=session.pending_batch_ids)
        results = length_results(server.batches[0])
        yield frame(results)
        yield done(results)
        for _ in requests:
            pass

    description = info(capabilities=pb.Capabilities())
    description.capabilities.result_retention.FromSeconds(60)
    server = serve(cut_after(3), replaying, description=description)
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(8)])
    assert all(scores[f"1-{i}"].outcomes["length"].outcome == Scored(i + 1.0) for i in range(8))
    assert len(server.batches) == 1
    assert scorer.counters() == ProtocolCounters(breaks=1)


def test_a_replay_with_other_values_changes_nothing(serve: Serve, make_scorer: MakeScorer) -> None:
    def another_mind(batch: pb.Batch) -> Answers:
        results = length_results(batch)
        for result in results:
            result.score.value += 100
        yield frame(results)
        yield done(results)

    deterministic = pb.Reward(name="length", deterministic=True)
    server = serve(cut_after(3), each_batch(another_mind), description=info(deterministic))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(5)])
    assert [scores[f"1-{i}"].outcomes["length"].outcome for i in range(5)] == [
        Scored(1.0),
        Scored(2.0),
        Scored(3.0),
        Scored(104.0),
        Scored(105.0),
    ]
    assert scorer.counters().differing == 3


def test_work_of_a_broken_replica_moves_to_another(serve: Serve, make_scorer: MakeScorer) -> None:
    def stuck_then_gone(
        session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext
    ) -> Answers:
        yield opened()
        next(requests)
        eventually(lambda: good.batches)
        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    good = serve()
    bad = serve(stuck_then_gone, abort(grpc.StatusCode.UNAVAILABLE))
    scorer = make_scorer(target(bad.address, good.address))
    eventually(lambda: good.opens and bad.opens)
    time.sleep(0.2)
    scores = score_all(scorer, [completion(i) for i in range(10)])
    assert all(scores[f"1-{i}"].outcomes["length"].outcome == Scored(i + 1.0) for i in range(10))
    assert sum(len(completions_of(batch)) for batch in good.batches) == 10


def crash_on(completion_id: str) -> Script:
    """A script that breaks the stream whenever a batch holds this completion."""

    def crashing(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened()
        for request in requests:
            if any(c.completion_id == completion_id for c in completions_of(request.batch)):
                context.abort(grpc.StatusCode.UNAVAILABLE, "crashed")
            results = length_results(request.batch)
            yield frame(results)
            yield done(results)

    return crashing


def test_a_completion_that_breaks_connections_is_found_and_failed(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    server = serve(crash_on("1-3"))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(8)])
    poison = scores["1-3"].outcomes["length"].outcome
    assert isinstance(poison, Failed)
    assert poison.code is FailureCode.INTERNAL
    assert "broke 4 times" in poison.message
    for index in (0, 1, 2, 4, 5, 6, 7):
        assert scores[f"1-{index}"].outcomes["length"].outcome == Scored(index + 1.0)
    assert scorer.counters().breaks == 4
    assert [len(completions_of(b)) for b in server.batches[:4]] == [8, 8, 8, 1]


def test_a_large_batch_is_taken_apart_in_steps(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(crash_on("1-50"))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(64)])
    failed = [cid for cid, one in scores.items() if isinstance(one.outcomes["length"].outcome, Failed)]
    assert failed == ["1-50"]
    sizes = [len(completions_of(b)) for b in server.batches]
    # Three breaks of the whole; six good eighths and the one that breaks; then that one's parts.
    assert sizes[:10] == [64, 64, 64, 8, 8, 8, 8, 8, 8, 8]
    assert scorer.counters().breaks == 5
    # Each part was alone, so that nothing else was lost with it: the last eighth and the singles came once.
    assert sorted(sizes[10:]) == [1] * 8 + [8]


def test_a_failure_that_is_replayed_after_a_break_is_tried_again_once(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    busy = pb.Failure(code=pb.Failure.CODE_UNAVAILABLE)
    busy.retry_delay.FromMilliseconds(300)

    def failing_first(batch: pb.Batch) -> list[pb.Result]:
        results = length_results(batch)
        if len(results) == 2:
            results[0].failure.CopyFrom(busy)
        return results

    def cut(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened()
        yield frame(failing_first(next(requests).batch)[:1])
        context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    def answer(batch: pb.Batch) -> Answers:
        yield frame(failing_first(batch))
        yield done(failing_first(batch))

    server = serve(cut, each_batch(answer))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(0), completion(1)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0)
    assert [len(completions_of(batch)) for batch in server.batches] == [2, 2, 1]
    assert scorer.counters() == ProtocolCounters(breaks=1, resends=1, retries=1)


def test_draining_servers_get_no_new_work_and_are_come_back_to(serve: Serve, make_scorer: MakeScorer) -> None:
    def draining(session: pb.SessionOpen, requests: Requests, context: object) -> Answers:
        yield opened()
        batch = next(requests).batch
        announcement = pb.Draining()
        announcement.grace.FromSeconds(30)
        yield pb.ScoreResponse(draining=announcement)
        second_is_in.wait(WAIT_SECONDS)
        time.sleep(0.1)
        assert next(iter(server.batches)) == batch
        assert len(server.batches) == 1
        yield frame(length_results(batch))
        yield done(length_results(batch))
        assert next(requests, None) is None  # the half-close

    second_is_in = threading.Event()
    server = serve(draining, well_behaved)
    scorer = make_scorer(target(server.address))
    ids = submit_all(scorer, [completion(i) for i in range(4)])
    eventually(lambda: server.batches)
    time.sleep(0.1)
    ids += submit_all(scorer, [completion(i) for i in range(10, 14)])
    second_is_in.set()
    assert scorer.wait(ids, WAIT_SECONDS)
    assert [len(completions_of(batch)) for batch in server.batches] == [4, 4]
    assert server.clean_ends >= 1
    first, second = server.opens
    assert first.session_id == second.session_id
    assert list(second.pending_batch_ids) == []
    assert scorer.counters() == ProtocolCounters()


def test_a_server_that_restarts_while_nothing_is_open_costs_nothing(
    serve_process: ServeProcess, make_scorer: MakeScorer
) -> None:
    server = serve_process()
    scorer = make_scorer(target(server.address))
    score_all(scorer, [completion(0)])
    server.kill()
    time.sleep(0.3)
    assert scorer.status_detail() == ""
    server.start()
    scores = score_all(scorer, [completion(i) for i in range(1, 65)])
    assert scores["1-64"].outcomes["length"].outcome == Scored(65.0)
    assert scorer.counters() == ProtocolCounters()


def test_kill_9_in_mid_work_and_back_after_a_while(
    serve_process: ServeProcess, make_scorer: MakeScorer
) -> None:
    server = serve_process("--delay", "0.05", "--window", "16")
    scorer = make_scorer(target(server.address, server="judge"))
    ids = submit_all(scorer, [completion(i) for i in range(320)])
    eventually(lambda: not scorer.wait(ids, 0) and scorer.wait(ids[:40], 0))
    server.kill()
    told: list[str] = []

    def back_later() -> None:
        time.sleep(2.0)
        eventually(lambda: scorer.status_detail().startswith("waiting"))
        told.append(scorer.status_detail())
        server.start()

    thread = threading.Thread(target=back_later)
    thread.start()
    assert scorer.wait(ids, WAIT_SECONDS)
    thread.join()
    scores = scorer.take(ids)
    assert [scores[f"1-{i}"].outcomes["length"].outcome for i in range(320)] == [
        Scored(i + 1.0) for i in range(320)
    ]
    assert re.fullmatch(
        rf'waiting for reward server "judge" \({server.address}\) to come back \(connection refused\) '
        r"for \d+ s; \d+ of 320 completions outstanding",
        told[0],
    ), told
    counters = scorer.counters()
    assert counters.breaks == 1
    assert counters.resends > 0


def test_a_server_that_is_not_up_yet_is_waited_for(serve: Serve, make_scorer: MakeScorer) -> None:
    port = free_port()
    scorer = make_scorer(target(f"127.0.0.1:{port}", server="judge"))
    ids = submit_all(scorer, [completion(i) for i in range(8)])
    assert not scorer.wait_ready(0.2)
    eventually(scorer.status_detail)
    detail = scorer.status_detail()
    assert re.fullmatch(
        rf'waiting for reward server "judge" \(127.0.0.1:{port}\) to come up \(connection refused\) '
        r"for \d+ s; 8 of 8 completions outstanding",
        detail,
    ), detail
    serve(port=port)
    assert scorer.wait_ready(WAIT_SECONDS)
    assert scorer.wait(ids, WAIT_SECONDS)
    eventually(lambda: scorer.status_detail() == "")


def test_a_server_that_fails_at_every_open_is_given_up_and_not_said_to_be_down(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    def broken(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        context.abort(grpc.StatusCode.INTERNAL, "unexpected error; incident 7")
        yield pb.ScoreResponse()

    # Once is no proof: the fifth time in a row is.
    recovers = serve(broken, broken, broken, broken, well_behaved)
    assert score_all(make_scorer(target(recovers.address)), [completion(0)])
    server = serve(broken)
    scorer = make_scorer(target(server.address, server="judge"))
    with pytest.raises(FailedPreconditionError) as caught:
        eventually(lambda: scorer.wait_ready(0.05))
    assert "is there, and fails each time that a session is opened (INTERNAL: unexpected error" in str(
        caught.value
    )
    assert len(server.opens) == 5


def test_past_the_budget_completions_are_unscored(make_scorer: MakeScorer) -> None:
    scorer = make_scorer(target(f"127.0.0.1:{free_port()}"), retry_seconds=0.6)
    scores = score_all(scorer, [completion(i) for i in range(3)])
    for one in scores.values():
        assert one.outcomes["length"].outcome == Failed(
            FailureCode.UNAVAILABLE, "the reward server could not be reached for 0.6 s (connection refused)"
        )


def test_past_the_budget_after_a_crash_too(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(cut_after(1), abort(grpc.StatusCode.UNAVAILABLE))
    scorer = make_scorer(target(server.address), retry_seconds=1.0)
    scores = score_all(scorer, [completion(i) for i in range(3)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0)
    outcome = scores["1-2"].outcomes["length"].outcome
    assert isinstance(outcome, Failed)
    assert outcome.code is FailureCode.UNAVAILABLE


@pytest.fixture
def silent_listener() -> Iterator[str]:
    """Accepts connections, and says nothing on them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_host_that_never_answers_hangs_nothing(silent_listener: str, make_scorer: MakeScorer) -> None:
    scorer = make_scorer(target(silent_listener), retry_seconds=1.0, connect_timeout_seconds=0.3)
    started = time.monotonic()
    scores = score_all(scorer, [completion(0)])
    outcome = scores["1-0"].outcomes["length"].outcome
    assert outcome == Failed(
        FailureCode.UNAVAILABLE,
        "the reward server could not be reached for 1 s (no answer within 0.3 s)",
    )
    scorer.close()
    assert time.monotonic() - started < 10


def test_a_replica_that_stops_answering_in_mid_work_is_routed_around(
    serve: Serve, serve_process: ServeProcess, make_scorer: MakeScorer
) -> None:
    frozen, good = serve_process(), serve()
    scorer = make_scorer(target(frozen.address, good.address, timeout_seconds=0.5), client_grace_seconds=0.2)
    eventually(lambda: good.opens)
    score_all(scorer, [completion(i) for i in range(4)])
    time.sleep(0.2)
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        scores = score_all(scorer, [completion(i) for i in range(10)])
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    assert all(scores[f"1-{i}"].outcomes["length"].outcome == Scored(i + 1.0) for i in range(10))


def test_a_server_that_allows_few_pings_is_pinged_less(
    serve: Serve, make_scorer: MakeScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # gRPC's own servers hang up on a client that pings more often than every five minutes.
    from plaudit.rpc import _channels

    options = tuple(o for o in _channels.CHANNEL_OPTIONS if o[0] != "grpc.keepalive_time_ms")
    monkeypatch.setattr(_channels, "CHANNEL_OPTIONS", (*options, ("grpc.keepalive_time_ms", 300)))

    def slow(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened()
        for request in requests:
            # 300 ms between pings, and three of them are too many: the first stream does not live to answer.
            while len(server.opens) == 1 and context.is_active():
                time.sleep(0.05)
            results = length_results(request.batch)
            yield frame(results)
            yield done(results)

    server = serve(slow)
    scorer = make_scorer(target(server.address))
    ids = submit_all(scorer, [completion(0)])
    assert scorer.wait(ids, WAIT_SECONDS)
    assert scorer.take(ids)["1-0"].outcomes["length"].outcome == Scored(1.0)
    assert len(server.opens) == 2
    assert scorer.counters().breaks == 1


def test_link_local_and_metadata_addresses_are_not_dialled(
    make_scorer: MakeScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name that leads to the metadata service: nothing but the resolver of this process is told so.
    real = socket.getaddrinfo

    def lying(host: str, port: int, *args: object, **kwargs: object) -> object:
        if host == "rewards.example":
            return real("169.254.169.254", port, *args, **kwargs)  # type: ignore[arg-type]
        return real(host, port, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lying)
    scorer = make_scorer(target("rewards.example:80"), retry_seconds=0.3)
    scores = score_all(scorer, [completion(0)])
    outcome = scores["1-0"].outcomes["length"].outcome
    assert isinstance(outcome, Failed)
    assert "rewards.example:80 leads to 169.254.169.254" in outcome.message


def test_a_name_with_several_addresses_reaches_the_one_that_listens(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    server = serve()  # listens on 127.0.0.1 only
    scorer = make_scorer(target(f"localhost:{server.port}"))
    assert scorer.wait_ready(WAIT_SECONDS)


# Servers that will never do.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min_protocol_version": 2, "max_protocol_version": 3}, ["2 to 3", "speaks 1"]),
        ({"rewards": [pb.Reward(name="height")]}, ["'length'", "height"]),
    ],
)
def test_a_server_that_cannot_be_used_is_told_at_once(
    serve: Serve, make_scorer: MakeScorer, changes: dict[str, object], words: list[str]
) -> None:
    server = serve(description=info(**changes))
    scorer = make_scorer(target(server.address, server="judge"))
    with pytest.raises(FailedPreconditionError) as caught:
        scorer.wait_ready(WAIT_SECONDS)
    for word in ["'judge'", *words]:
        assert word in caught.value.message


@pytest.mark.parametrize("missing", ["GetServerInfo", "Score"])
def test_a_method_that_the_server_lacks_is_named(
    serve: Serve, make_scorer: MakeScorer, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    generated = getattr(pb_grpc.RewardServiceServicer, missing)
    monkeypatch.setattr(ScriptedServer, missing, generated)
    scorer = make_scorer(target(serve().address, server="judge"))
    with pytest.raises(FailedPreconditionError) as caught:
        scorer.wait_ready(WAIT_SECONDS)
    told = caught.value.message
    assert f"'judge' does not have {missing} of plaudit.reward.v1 (Method not implemented!)" in told
    assert "check its address" in told


def test_a_refused_configuration_names_the_field_of_the_job(serve: Serve, make_scorer: MakeScorer) -> None:
    def refusing(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        refusal = InvalidArgumentError.of("rewards[0].config_json.limit", '"ten" is no number')
        status = status_of(refusal)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, status.message)
        yield opened()

    good, strict = serve(), serve(refusing)
    scorer = make_scorer(
        target(good.address, server="good"),
        target(strict.address, server="strict", name="other", config={"limit": "ten"}),
    )
    with pytest.raises(InvalidArgumentError) as caught:
        scorer.wait_ready(WAIT_SECONDS)
    (violation,) = caught.value.violations
    assert violation.field == "rewards[1].config.limit"
    assert '"ten" is no number' in violation.message
    assert "'strict'" in violation.message
    assert len(strict.opens) == 1  # coming back is useless


def test_a_refusal_without_a_field_is_told_for_the_rewards_of_the_server(
    serve: Serve, make_scorer: MakeScorer
) -> None:
    good, strict = serve(), serve(abort(grpc.StatusCode.INVALID_ARGUMENT, "I do not like you"))
    scorer = make_scorer(
        target(good.address, server="good"), target(strict.address, server="strict", name="other")
    )
    with pytest.raises(InvalidArgumentError) as caught:
        scorer.wait_ready(WAIT_SECONDS)
    (violation,) = caught.value.violations
    assert violation.field == "rewards[1]"
    assert "I do not like you" in violation.message


@pytest.mark.parametrize(
    ("code", "error", "failure"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, UnauthenticatedError, FailureCode.EXHAUSTED),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPreconditionError, FailureCode.INVALID),
        (grpc.StatusCode.UNIMPLEMENTED, FailedPreconditionError, FailureCode.INVALID),
    ],
)
def test_a_server_that_refuses_in_mid_run_pauses_the_job(
    serve: Serve,
    make_scorer: MakeScorer,
    code: grpc.StatusCode,
    error: type[PlauditError],
    failure: FailureCode,
) -> None:
    server = serve(cut_after(1), abort(code, "not any more"))
    scorer = make_scorer(target(server.address))
    scores = score_all(scorer, [completion(i) for i in range(3)])
    assert scores["1-0"].outcomes["length"].outcome == Scored(1.0)
    outcome = scores["1-1"].outcomes["length"].outcome
    assert isinstance(outcome, Failed)
    assert outcome.code is failure
    assert "not any more" in outcome.message
    assert "not any more" in (scorer.pause_reason() or "")
    # What is handed in later fails at once, and the server is left alone.
    later = score_all(scorer, [completion(7)])
    assert isinstance(later["1-7"].outcomes["length"].outcome, Failed)
    assert len(server.opens) == 2
    with pytest.raises(error):
        scorer.wait_ready(1)


def test_a_useless_replica_leaves_the_work_to_the_others(serve: Serve, make_scorer: MakeScorer) -> None:
    useless, good = serve(description=info(pb.Reward(name="height"))), serve()
    scorer = make_scorer(target(useless.address, good.address))
    assert scorer.wait_ready(WAIT_SECONDS)
    scores = score_all(scorer, [completion(i) for i in range(20)])
    assert scores["1-19"].outcomes["length"].outcome == Scored(20.0)
    assert useless.opens == []
    assert scorer.pause_reason() is None


def test_a_changed_version_is_noted(serve: Serve, make_scorer: MakeScorer) -> None:
    server = serve(cut_after(1), well_behaved)
    scorer = make_scorer(target(server.address))
    assert scorer.wait_ready(WAIT_SECONDS)
    assert scorer.server_versions() == {"scripted": "1.0"}
    server.description = info(LENGTH, server_version="1.1")
    score_all(scorer, [completion(0), completion(1)])
    assert scorer.server_versions() == {"scripted": "1.1"}
    assert server.infos == 2


@pytest.mark.faults
def test_three_replicas_one_killed_again_and_again(
    serve_process: ServeProcess, make_scorer: MakeScorer
) -> None:
    servers = [serve_process("--delay", "0.004", "--window", "256") for _ in range(3)]
    scorer = make_scorer(target(*(server.address for server in servers)))
    assert scorer.wait_ready(WAIT_SECONDS)
    rounds, per_round = 6, 3_000
    for number in range(rounds):
        first = number * per_round
        ids = submit_all(scorer, [completion(i, "x" * (i % 50)) for i in range(first, first + per_round)])
        # The kill follows the work and not a clock: on a fast machine, too, most of the round is open.
        assert scorer.wait(ids[:100], WAIT_SECONDS)
        server = servers[number % 3]
        server.kill()
        server.start()
        assert scorer.wait(ids, 90)
        scores = scorer.take(ids)
        assert len(scores) == per_round
        # Every outcome was accepted once, and is the right one: nothing was lost, doubled, or mixed up.
        assert all(
            scores[f"1-{i}"].outcomes["length"].outcome == Scored(float(i % 50))
            for i in range(first, first + per_round)
        )
    assert scorer.counters().breaks >= 1
