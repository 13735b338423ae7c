"""Large completions against a server with the limits that gRPC sets where nobody sets any."""

from __future__ import annotations

from collections.abc import Callable

from scoring_helpers import completion, score_all, target
from scoring_servers import ScriptedServer

from plaudit.scoring import ProtocolCounters, RewardScorer
from plaudit.types.scoring import Failed, FailureCode, Scored

STOCK_BYTES = 4 * 2**20
"""What a gRPC server takes in a message where nobody says otherwise."""


def test_what_a_stock_server_would_refuse_is_sent_in_parts(
    serve: Callable[..., ScriptedServer], make_scorer: Callable[..., RewardScorer]
) -> None:
    """64 completions of 100 kB, 6.4 MB of one batch; and one that no message of 4 MiB can hold."""
    server = serve()
    scorer = make_scorer(target(server.address))
    texts = dict.fromkeys(range(64), "y" * 100000) | {64: "z" * STOCK_BYTES}
    scores = score_all(scorer, [completion(index, text) for index, text in texts.items()], group_size=65)
    outcomes = {index: scores[f"1-{index}"].outcomes["length"].outcome for index in texts}
    large = outcomes.pop(64)
    assert outcomes == dict.fromkeys(range(64), Scored(100_000.0))
    assert isinstance(large, Failed)
    assert large.code is FailureCode.INVALID
    assert max(server.frame_sizes) <= 1_000_000
    # No connection was broken over it, and nothing was sent twice.
    assert len(server.opens) == 1
    assert scorer.counters() == ProtocolCounters()
