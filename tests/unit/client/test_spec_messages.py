"""The SDK carries a spec to the gateway where it can, and refuses in the same words where it cannot."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.servicers._convert import binding_to_proto, bindings_to_data
from plaudit import Client
from plaudit.client._convert import binding_from_proto, spec_from_proto, spec_to_proto
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


def test_how_often_a_reward_is_tried_is_echoed_as_the_job_has_it() -> None:
    asked = {**GOOD["rewards"][0], "max_attempts": 2, "retry_seconds": 12.5}
    message = spec_to_proto({**GOOD, "rewards": [asked, {**GOOD["rewards"][0], "name": "other"}]})
    spec = parse_job_spec({**GOOD, "rewards": bindings_to_data(message.rewards, [])})
    echoed = [binding_from_proto(binding_to_proto(binding)) for binding in spec.rewards]
    assert [(one["max_attempts"], one["retry_seconds"]) for one in echoed] == [(2, 12.5), (5, 300.0)]


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
        ({"rewards": [{**GOOD["rewards"][0], "retry_seconds": 1e300}]}, "rewards[0].retry_seconds"),
        ({"rewards": [{**GOOD["rewards"][0], "max_attempts": 2.5}]}, "rewards[0].max_attempts"),
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rewards": [{**GOOD["rewards"][0], "config": {"since": date(2026, 1, 1)}}]},
            "(request): holds what JSON does not have (Object of type date is not JSON serializable); "
            "write it as text, or leave it out",
        ),
        (
            {"output_name": "\ud800"},
            "(request): holds half of a surrogate pair (\\ud800), which is no character; write the character "
            "in full, or take it out",
        ),
    ],
)
def test_what_is_no_json_is_refused_with_a_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        spec_to_proto({**GOOD, **change})
    assert caught.value.message == message


def test_arguments_that_no_message_can_carry_are_told_all_at_once() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidArgumentError) as caught:
        client.training_jobs.metrics("\ud800", keys=[7], from_step=-1, max_points=2**32)  # type: ignore[list-item]
    assert [f"{v.field}: {v.message}" for v in caught.value.violations] == [
        'id: "\\ud800" is refused: must be text, whole characters of UTF-8 only',
        "keys: [7] is refused: must be a list, each entry text, whole characters of UTF-8 only",
        "from_step: -1 is refused: must be a whole number from 0 to 18446744073709551615",
        "max_points: 4294967296 is refused: must be a whole number from 0 to 4294967295",
    ]


def test_every_call_refuses_text_that_is_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}')
    odd = "\udcff"
    with Client("127.0.0.1:1") as client:
        jobs, datasets, servers = client.training_jobs, client.datasets, client.reward_servers
        for call in (
            lambda: jobs.get(odd),
            lambda: jobs.pause(odd),
            lambda: jobs.resume(odd),
            lambda: jobs.cancel(odd),
            lambda: next(jobs.watch(odd)),
            lambda: next(jobs.watch("job_1", after_cursor=odd)),
            lambda: next(jobs.completions(odd)),
            lambda: jobs.submit(GOOD, request_id=odd),
            lambda: datasets.get(odd),
            lambda: datasets.delete(odd),
            lambda: datasets.upload(tmp_path / "rows.jsonl", name=odd),
            lambda: servers.get(odd),
            lambda: servers.delete(odd),
            lambda: servers.create(odd, ["127.0.0.1:1"]),
        ):
            with pytest.raises(InvalidArgumentError, match=r"is refused: must be text"):
                call()
