"""Random servers, random breaks: every completion gets exactly one outcome, and it is the right one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scoring_helpers import ServerProcess, completion, submit_all, target

from plaudit.scoring import RewardScorer
from plaudit.types.scoring import Failed, Scored


@pytest.mark.parametrize("seed", range(3))
def test_exactly_one_outcome_whatever_happens(
    seed: int, serve_process: Callable[..., ServerProcess], make_scorer: Callable[..., RewardScorer]
) -> None:
    servers = [
        serve_process("--seed", str(10 * seed + index), program="scoring_chaos_server.py")
        for index in range(2)
    ]
    # Breaks here are the network's and not a completion's, however often: none may be taken for a poison.
    scorer = make_scorer(target(*(server.address for server in servers)), max_attempts=50)
    total = 1500
    ids = submit_all(scorer, [completion(i, "x" * (i % 97)) for i in range(total)])
    assert scorer.wait(ids, 60), scorer.counters()
    scores = scorer.take(ids)
    outcomes = [scores[f"1-{i}"].outcomes["length"].outcome for i in range(total)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert failures == []
    assert outcomes == [Scored(float(i % 97)) for i in range(total)]
    counters = scorer.counters()
    assert counters.differing == counters.unknown == counters.non_finite == counters.out_of_range == 0
    assert counters.retries > 0
    assert counters.missing > 0
    # What the servers saw the client do wrong.
    assert [server.kill() for server in servers] == ["", ""]
