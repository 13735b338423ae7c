"""Descriptions that lie: what of them is shown, and what is told."""

from __future__ import annotations

import json
import math

import pytest

from gateway.rewards.descriptions import description_of, digests_of
from plaudit.reward.v1 import reward_service_pb2 as pb


def described(*rewards: pb.Reward) -> pb.GetServerInfoResponse:
    return pb.GetServerInfoResponse(
        server_name="liar", min_protocol_version=1, max_protocol_version=1, rewards=rewards
    )


def test_thousands_of_rewards_are_cut_and_told() -> None:
    description = description_of(described(*(pb.Reward(name=f"r{n}") for n in range(5000))))
    assert [reward.name for reward in description.rewards] == [f"r{n}" for n in range(256)]
    assert description.warnings == ("it offers 5,000 rewards; the first 256 are shown",)


def test_doubled_and_impossible_names_are_told() -> None:
    names = ["good", "Bad Name", "good", "", "x" * 64, "\x1b[31mred", "fine"]
    rewards = [pb.Reward(name=name, description=str(place)) for place, name in enumerate(names)]
    description = description_of(described(*rewards))
    assert [(r.name, r.description) for r in description.rewards] == [("good", "0"), ("fine", "6")]
    unusable, doubled = description.warnings
    assert unusable.startswith('4 rewards have names that no job can use ("Bad Name", "", "xxx')
    assert doubled == '1 names stand for several rewards ("good"); the first of each is shown'


def test_texts_that_would_break_a_table_or_steer_a_terminal_are_one_plain_line() -> None:
    answer = described(pb.Reward(name="good", description=" One\n\tline\u2028of\r\n\x1b[2Jtext \u202eback "))
    answer.server_name, answer.server_version = "a\nserver   answers yes", "1.0\x00" + "9" * 1000
    description = description_of(answer)
    assert description.rewards[0].description == "One line of \ufffd[2Jtext \ufffdback"
    assert description.server_version == "a server answers yes 1.0\ufffd" + "9" * 196


def test_no_reward_at_all_is_told() -> None:
    description = description_of(described())
    assert (description.rewards, description.warnings) == ((), ("it offers no reward",))


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (1.0, 0.0, "1 to 0"),
        (math.nan, 1.0, "nan to 1"),
        (0.0, math.nan, "0 to nan"),
        (math.inf, math.inf, "inf to inf"),
        (-math.inf, -math.inf, "-inf to -inf"),
        (-math.inf, math.inf, ""),
        (0.5, 0.5, ""),
    ],
)
def test_a_range_without_values_is_told(low: float, high: float, told: str) -> None:
    description = description_of(described(pb.Reward(name="odd", min_value=low, max_value=high)))
    (odd,) = description.rewards
    if told:
        assert f"no value lies in its range, {told}" in odd.problem
        assert description.warnings == (f"odd: {odd.problem}",)
    else:
        assert (odd.problem, description.warnings) == ("", ())
    assert all(bound is None or math.isfinite(bound) for bound in (odd.min_value, odd.max_value))


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[1, 2]",
        '{"type": 7}',
        '{"a":' * 5000 + "1" + "}" * 5000,
        json.dumps({"type": "object", "title": "x" * 40_000}),
        '{"type": "object", "properties": {"a": {"enum": "NaN"}}}',
    ],
    ids=["no JSON", "a list", "no schema", "deep", "large", "wrong keyword"],
)
def test_a_schema_of_no_use_is_told_and_admits_everything(text: str) -> None:
    description = description_of(described(pb.Reward(name="odd", config_schema_json=text)))
    assert description.rewards[0].config_schema == {}
    (warning,) = description.warnings
    assert "their configurations are checked by the server alone" in warning


def test_schemas_beyond_the_room_for_all_are_left_to_the_server() -> None:
    large = json.dumps({"type": "object", "title": "x" * 30_000})
    rewards = [pb.Reward(name=f"r{n}", config_schema_json=large) for n in range(12)]
    description = description_of(described(*rewards))
    checked = [reward.name for reward in description.rewards if reward.config_schema]
    assert checked == [f"r{n}" for n in range(8)]
    assert description.warnings[0].startswith("the config_schema_json of 4 rewards can not be used")


def test_a_digest_changes_with_the_description_alone() -> None:
    before = digests_of(described(pb.Reward(name="a", max_value=1.0), pb.Reward(name="b")))
    again = digests_of(described(pb.Reward(name="b"), pb.Reward(name="a", max_value=1.0)))
    other = digests_of(described(pb.Reward(name="a", max_value=2.0), pb.Reward(name="b")))
    assert before == again
    assert (other["a"] == before["a"], other["b"] == before["b"]) == (False, True)


def test_a_protocol_that_is_not_spoken_is_told_with_both_ranges() -> None:
    answer = described(pb.Reward(name="a"))
    answer.min_protocol_version = answer.max_protocol_version = 0
    description = description_of(answer)
    assert not description.reachable
    assert "versions 0 to 0" in description.incompatible
    assert "trainers speak 1 to 1" in description.incompatible
