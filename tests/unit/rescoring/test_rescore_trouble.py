"""What reward servers did wrong during a rescore is told by server and cause."""

from __future__ import annotations

from gateway.rescoring.runner import _trouble
from plaudit.scoring import ProtocolCounters


def test_each_server_and_cause_is_named() -> None:
    honest = ProtocolCounters(breaks=2, retries=5)
    liar = ProtocolCounters(differing=64, doubled=64, miscounted=1)
    assert _trouble({"honest": honest}) == ""
    assert _trouble({"honest": honest, "liar": liar}) == (
        "reward server liar: 64 results that came twice, 64 repeated results with another value, "
        "1 dones whose counts do not add up"
    )
