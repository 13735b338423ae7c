"""What reward_plane makes of its turns and losses, and that its paths carry what they should."""

import pytest
from reward_paths.killing import Losses
from reward_paths.work import TEXT_CHARACTERS, length_share, rollout
from reward_plane import loss_figures, throughput_figures

from plaudit.scoring import ProtocolCounters


def turns(*rates, wrong=0):
    return [
        {"rate": rate, "client_microseconds": 10.0, "server_microseconds": 5.0, "wrong": wrong}
        for rate in rates
    ]


def test_ratios_are_taken_turn_by_turn():
    figures = {
        figure.bar: figure
        for figure in throughput_figures(
            {
                "ours": turns(30_000.0, 60_000.0, 40_000.0),
                "http": turns(1_000.0, 1_000.0, 2_000.0),
                "http_64": turns(15_000.0, 15_000.0, 10_000.0),
                "echo": turns(100_000.0, 120_000.0, 50_000.0, wrong=1),
            }
        )
    }
    assert figures["reward_plane/against_http"].value == 30.0
    assert figures["reward_plane/against_http"].verdict() is True
    assert figures["reward_plane/against_http_64"].value == 4.0
    assert figures["reward_plane/against_echo"].value == 0.5
    assert figures["reward_plane/wrong"].value == 3
    assert figures["reward_plane/wrong"].verdict() is False


def test_losses_are_judged_against_none():
    lost, doubled = loss_figures(Losses(1_000, 2, 0, 9, 12.34, ProtocolCounters(breaks=9)))
    assert (lost.value, lost.verdict()) == (2, False)
    assert (doubled.value, doubled.verdict()) == (0, True)
    assert lost.more["counters"] == {"breaks": 9}


def test_completions_have_two_kilobytes_and_scores_of_their_own():
    work = list(rollout(1, 64))
    completions = [completion for _, group in work for completion in group]
    lengths = [len(completion.text) for completion in completions]
    assert sum(lengths) / len(lengths) == pytest.approx(TEXT_CHARACTERS, abs=50)
    assert len({length_share(completion.text) for completion in completions}) == 64
    assert len({completion.completion_id for completion in completions}) == 64
    assert [len(group) for _, group in work] == [8] * 8
