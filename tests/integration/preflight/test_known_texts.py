"""Asking servers for texts whose worth is known: one that writes them, one that fails, one that cannot."""

from concurrent.futures import ThreadPoolExecutor

import grpc

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.scoring import KnownTexts, RewardScorer
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import ChatMessage, Examples, Prompt

PROMPTS = [Prompt(f"p{n}", (ChatMessage("user", f"What is {n} + 1?"),), {"answer": n + 1}) for n in range(2)]


def target(reward, address, **binding):
    return RewardTarget(
        binding=RewardBinding(name=reward, server=address, reward=reward, **binding), addresses=(address,)
    )


def known_texts(*targets):
    with RewardScorer(targets, session_scope="s", job_id="j", model="m") as scorer:
        assert scorer.wait_ready(30)
        return scorer.known_texts(PROMPTS, 10), scorer.rules()


def test_rewards_of_one_server_are_each_asked_for_their_own(probed_server):
    known, rules = known_texts(
        *(target(name, probed_server) for name in ("sound", "beyond", "bad_examples", "shortest"))
    )
    assert list(known) == ["sound", "beyond", "bad_examples", "shortest"]
    assert known["sound"].examples == {
        "p0": Examples(("It is 1.",), ("It is 1000.",)),
        "p1": Examples(("It is 2.",), ("It is 1000.",)),
    }
    assert known["beyond"] == known["shortest"] == KnownTexts()
    assert known["bad_examples"].examples == {}
    assert "KeyError (preflight_rewards.py:" in known["bad_examples"].problem
    assert (rules["sound"].low, rules["sound"].high, rules["sound"].whole_group) == (0.0, 1.0, False)
    assert rules["shortest"].whole_group


class Minimal(pb_grpc.RewardServiceServicer):
    """What every server must do, and nothing else."""

    def GetServerInfo(self, request, context):
        return pb.GetServerInfoResponse(
            min_protocol_version=1, max_protocol_version=1, rewards=[pb.Reward(name="plain")]
        )

    def Score(self, frames, context):
        for frame in frames:
            if frame.HasField("open"):
                yield pb.ScoreResponse(opened={"max_in_flight_completions": 8})


def test_a_server_that_writes_none_is_no_error():
    server = grpc.server(ThreadPoolExecutor(4))
    pb_grpc.add_RewardServiceServicer_to_server(Minimal(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        known, rules = known_texts(target("plain", f"127.0.0.1:{port}"))
    finally:
        server.stop(0)
    assert known == {"plain": KnownTexts()}
    assert rules["plain"].low == -1e6  # none is promised
