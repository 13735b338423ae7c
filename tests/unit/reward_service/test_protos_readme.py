"""protos/README.md publishes numbers that stand in the code, and names that stand in the proto file."""

from __future__ import annotations

import re
from pathlib import Path

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import MAX_MESSAGE_BYTES
from plaudit.rpc._options import CHANNEL_OPTIONS, SERVER_OPTIONS
from plaudit.scoring import ScoringLimits
from plaudit.types.jobs import RewardBinding

README = (Path(__file__).resolve().parents[3] / "protos" / "README.md").read_text()


def row(title: str) -> str:
    (line,) = [line for line in README.splitlines() if line.startswith(f"| {title}")]
    return line.split("|")[2].strip()


def test_limits_and_keepalive_are_those_of_the_code() -> None:
    channel, server = dict(CHANNEL_OPTIONS), dict(SERVER_OPTIONS)
    assert row("largest message") == f"{MAX_MESSAGE_BYTES // 2**20} MiB"
    every, within = channel["grpc.keepalive_time_ms"] // 1000, channel["grpc.keepalive_timeout_ms"] // 1000
    assert row("ping on a quiet") == f"every {every} s, answered within {within} s, also without calls"
    assert channel["grpc.keepalive_permit_without_calls"] == 1
    least = server["grpc.http2.min_ping_interval_without_data_ms"] // 1000
    assert row("least interval") == f"{least} s, without limit of strikes"
    assert server["grpc.http2.max_ping_strikes"] == 0
    first = channel["grpc.initial_reconnect_backoff_ms"] / 1000
    most = channel["grpc.max_reconnect_backoff_ms"] // 1000
    assert row("reconnect") == f"after {first:g} s, doubling to {most} s"


def test_retries_are_those_of_the_scorer() -> None:
    binding = RewardBinding(name="a", server="b", reward="c")
    assert f"up to {binding.max_attempts} in all and within {binding.retry_seconds:g} s" in README
    assert f"gives up on a batch {ScoringLimits().client_grace_seconds:g} s after its timeout" in README


def test_every_failure_code_has_a_row_and_every_row_a_code() -> None:
    told = set(re.findall(r"^\| (CODE_[A-Z_]+) \|", README, re.MULTILINE))
    assert told == set(pb.Failure.Code.keys()) - {"CODE_UNSPECIFIED"}


def test_the_minimal_server_is_the_one_that_is_linked() -> None:
    links = re.findall(r"\]\((?!http|#)([^)#]+)", README)
    assert links
    for link in links:
        assert (Path(__file__).resolve().parents[3] / "protos" / link).exists(), link
