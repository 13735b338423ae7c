"""The SDK carries a spec to the gateway where it can, and refuses in the same words where it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.client._convert import spec_from_proto, spec_to_proto
from plaudit.errors import InvalidArgumentError
from plaudit.types.validation import check_job_spec, parse_job_spec

GOOD: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "adder",
    "hyperparameters": {"learning_rate": 1e-3, "max_steps": 50},
    "rewards": [{"server": "builtin", "reward": "exact_answer", "weight": 0.7, "timeout_seconds": 1.5}],
}


def test_a_spec_arrives_as_it_was_written() -> None:
    message = spec_to_proto(GOOD)
    # 50 stays a whole number: Struct would have made 50.0 of it.
    assert message.hyperparameters_json == '{"learning_rate": 0.001, "max_steps": 50}'
    assert message.rewards[0].timeout.seconds == 1
    assert message.rewards[0].timeout.nanos == 500_000_000
    assert message.rewards[0].name == ""
    assert message.method == ""


def test_a_wrong_value_that_can_travel_is_left_to_the_gateway() -> None:
    message = spec_to_proto({**GOOD, "output_name": "a/b", "hyperparameters": {"learning_rat": 1}})
    assert message.output_name == "a/b"
    assert json.loads(message.hyperparameters_json) == {"learning_rat": 1}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dataset_id": 7}, "dataset_id"),
        ({"name": "x"}, "name"),
        ({"rewards": "exact_answer"}, "rewards"),
        ({"rewards": ["exact_answer"]}, "rewards[0]"),
        ({"rewards": [{**GOOD["rewards"][0], "weight": "much"}]}, "rewards[0].weight"),
        ({"rewards": [{**GOOD["rewards"][0], "weight": True}]}, "rewards[0].weight"),
        ({"rewards": [{**GOOD["rewards"][0], "timeout_seconds": 1e300}]}, "rewards[0].timeout_seconds"),
        ({"hyperparameters": [1]}, "hyperparameters"),
    ],
)
def test_what_no_message_can_carry_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        spec_to_proto({**GOOD, **change})
    assert [v.field for v in caught.value.violations] == [field]
    assert list(caught.value.violations) == check_job_spec({**GOOD, **change})[1]


@given(
    weight=st.floats(-1e6, 1e6).filter(lambda w: w != 0),
    timeout=st.floats(0.001, 86_400),
    config=st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.none(), max_size=4),
)
def test_a_binding_survives_the_message(weight: float, timeout: float, config: dict[str, Any]) -> None:
    reward = {
        **GOOD["rewards"][0],
        "name": "mine",
        "weight": weight,
        "timeout_seconds": timeout,
        "config": config,
    }
    back = spec_from_proto(spec_to_proto({**GOOD, "rewards": [reward]})).rewards[0]
    sent = parse_job_spec({**GOOD, "rewards": [reward]}).rewards[0]
    assert (back.name, back.server, back.reward, back.weight, back.config) == (
        sent.name, sent.server, sent.reward, sent.weight, sent.config,
    )  # fmt: skip
    assert back.timeout_seconds == pytest.approx(timeout, abs=1e-9)
