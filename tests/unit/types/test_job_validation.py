"""The one validation: every wrong field at once, each with the value and the way out."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.errors import InvalidArgumentError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import accepted_job_spec
from plaudit.types.model_names import model_name_fault
from plaudit.types.validation import check_job_spec, check_run_spec, parse_job_spec, parse_json_object


def spec(**changes: Any) -> dict[str, Any]:
    """A spec that is accepted, with changes."""
    base = {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "rewards": [{"server": "builtin", "reward": "exact_answer"}],
    }
    return {**base, **changes}


def wrong(data: object) -> dict[str, str]:
    """Field to message of everything that is wrong."""
    return {violation.field: violation.message for violation in check_job_spec(data)[1]}


def test_defaults_are_the_designs_table() -> None:
    parsed = parse_job_spec(spec())
    assert parsed.method == "grpo"
    assert parsed.rewards[0].name == "exact_answer"
    assert parsed.rewards[0].weight == 1.0
    assert parsed.rewards[0].timeout_seconds == 60.0
    # The thirteen names whose defaults are fixed, written down from the design, not from the code.
    assert parsed.hyperparameters.model_dump(
        include={
            "learning_rate", "num_epochs", "max_steps", "rollouts_per_prompt", "kl_coef", "max_prompt_length",
            "max_response_length", "global_batch_size", "seed", "lora_rank", "lora_alpha", "load_in_4bit",
            "use_unsloth",
        }
    ) == {
        "learning_rate": 1e-6, "num_epochs": 1, "max_steps": None, "rollouts_per_prompt": 8, "kl_coef": 0.001,
        "max_prompt_length": 1024, "max_response_length": 2048, "global_batch_size": 64, "seed": 42,
        "lora_rank": None, "lora_alpha": None, "load_in_4bit": False, "use_unsloth": False,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["builtin:nope", "builtin:", " ", "\0", "a\nb\x1b[31m", " a", "a" * 513])
def test_what_can_be_no_model_is_refused_at_once(name: str) -> None:
    assert set(wrong(spec(base_model=name))) == {"base_model"}
    assert model_name_fault(name)


@pytest.mark.parametrize("name", ["builtin:tiny", "Qwen/Qwen3-0.6B", "/srv/my models/größe", "a"])
def test_a_hub_id_or_a_path_may_name_a_model(name: str) -> None:
    assert wrong(spec(base_model=name)) == {}
    assert model_name_fault(name) is None


def test_ten_wrong_fields_are_told_at_once() -> None:
    found = wrong(
        spec(
            base_model="",
            output_name="a/b",
            method="ppo",
            hyperparameters={
                "learning_rate": "fast",
                "rollouts_per_prompt": 1,
                "max_steps": 0,
                "kl_coef": -1,
                "loss_type": "mine",
                "learning_rat": 1,
            },
            rewards=[{"server": "builtin", "reward": "exact_answer", "weight": 2e6}],
        )
    )
    assert set(found) == {
        "base_model",
        "output_name",
        "method",
        "hyperparameters.learning_rate",
        "hyperparameters.rollouts_per_prompt",
        "hyperparameters.max_steps",
        "hyperparameters.kl_coef",
        "hyperparameters.loss_type",
        "hyperparameters.learning_rat",
        "rewards[0].weight",
    }
    assert '"fast"' in found["hyperparameters.learning_rate"]
    assert "1e-06" in found["hyperparameters.learning_rate"]


@pytest.mark.parametrize(
    ("hyperparameters", "field", "way_out"),
    [
        ({"global_batch_size": 60}, "global_batch_size", "56 or 64 would work"),
        ({"global_batch_size": 4}, "global_batch_size", "8 would work"),
        ({"micro_batch_size": 24}, "micro_batch_size", "16 would work"),
        ({"lora_alpha": 8}, "lora_alpha", "set lora_rank"),
        ({"checkpoint_every": 2.5}, "checkpoint_every", "2 would work"),
        ({"max_steps": 10, "warmup_steps": 10}, "warmup_steps", "at most 9 would work"),
        ({"load_in_4bit": True}, "load_in_4bit", "set lora_rank"),
        ({"eval_every": 5}, "eval_every", "has no effect without eval_dataset_id"),
        ({"eval_temperature": 0.7}, "eval_temperature", "or leave eval_temperature out"),
        ({"eval_max_prompts": 8}, "eval_max_prompts", "has no effect without eval_dataset_id"),
        ({"eval_dataset_id": "ds_1", "eval_every": 2.5}, "eval_every", "2 would work"),
        ({"eval_dataset_id": "ds_1", "eval_every": 0}, "eval_every", "greater than 0"),
        ({"eval_dataset_id": "ds_1", "eval_max_prompts": 0}, "eval_max_prompts", "for example 256"),
        ({"eval_dataset_id": "ds_1", "eval_temperature": -1}, "eval_temperature", "for example 0.0"),
        ({"kl_coef": 1e308}, "kl_coef", "less than or equal to 1000"),
        ({"weight_decay": 1e308}, "weight_decay", "less than or equal to 1000"),
        ({"max_grad_norm": 1e308}, "max_grad_norm", "less than or equal to 1000000000"),
        ({"rollout_engine": "vllm"}, "rollout_engine", "'auto' or 'transformers' would work"),
        ({"stop_on": ["collapse", "non_finite"]}, "stop_on[0]", "'policy_collapse', 'length_explosion'"),
        ({"stop_on": "non_finite"}, "stop_on", 'for example ["policy_collapse"]'),
    ],
)
def test_rules_propose_what_works(hyperparameters: dict[str, Any], field: str, way_out: str) -> None:
    found = wrong(spec(hyperparameters=hyperparameters))
    assert list(found) == [f"hyperparameters.{field}"]
    assert way_out in found[f"hyperparameters.{field}"]


def test_a_rule_is_left_out_where_a_field_that_it_reads_is_wrong() -> None:
    found = wrong(spec(hyperparameters={"global_batch_size": "many", "rollouts_per_prompt": 7}))
    assert list(found) == ["hyperparameters.global_batch_size"]


@given(group=st.integers(2, 40), batch=st.integers(2, 4096))
def test_a_batch_is_accepted_exactly_where_the_group_size_divides_it(group: int, batch: int) -> None:
    found = wrong(spec(hyperparameters={"rollouts_per_prompt": group, "global_batch_size": batch}))
    assert (found == {}) == (batch % group == 0)
    for message in found.values():
        proposed = [int(word.rstrip(";")) for word in message.split(";")[-1].split() if word.isdigit()]
        assert proposed
        assert all(value % group == 0 for value in proposed)


def test_rewards_need_names_of_their_own() -> None:
    twice = [{"server": "builtin", "reward": "exact_answer"}] * 2
    assert "is the name of rewards[0] too" in wrong(spec(rewards=twice))["rewards[1].name"]
    named = [{**twice[0], "name": "first"}, {**twice[1], "name": "second"}]
    assert wrong(spec(rewards=named)) == {}


def test_a_reward_of_weight_0_is_held_out_and_one_must_be_taught() -> None:
    taught = {"server": "builtin", "reward": "exact_answer", "weight": 0.5}
    held_out = {**taught, "name": "second", "weight": 0}
    bindings = parse_job_spec(spec(rewards=[taught, held_out])).rewards
    assert [binding.is_held_out for binding in bindings] == [False, True]
    found = wrong(spec(rewards=[held_out, {**held_out, "name": "third"}]))
    assert list(found) == ["rewards"]
    assert "give at least one of them a weight, for example 1" in found["rewards"]


def test_evaluations_are_a_matter_of_grpo() -> None:
    good = {"eval_dataset_id": "held-out", "eval_every": 20, "eval_temperature": 0.7, "eval_max_prompts": 64}
    assert wrong(spec(hyperparameters=good)) == {}
    found = wrong(spec(method="sft", rewards=[], hyperparameters=good))
    assert set(found) == {f"hyperparameters.{name}" for name in good}
    assert all("is a hyperparameter of grpo, and sft has none" in message for message in found.values())


def test_a_run_has_the_rows_of_evaluations_exactly_where_the_job_names_a_dataset() -> None:
    dataset = {"uri": "datasets/ab.parquet", "sha256": "ab", "row_count": 3}
    job = parse_job_spec(spec()).model_dump(mode="json")
    run = {name: job[name] for name in ("base_model", "output_name", "method")} | {
        "dataset": dataset,
        "rewards": [{"binding": job["rewards"][0], "addresses": ["127.0.0.1:1"]}],
    }
    for evaluated in (False, True):
        h = {**job["hyperparameters"], "eval_dataset_id": "held-out" if evaluated else None}
        for rows in (None, dataset):
            _, violations = check_run_spec({**run, "hyperparameters": h, "eval_dataset": rows})
            fields = [v.field for v in violations]
            assert fields == ([] if evaluated == (rows is not None) else ["eval_dataset"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_numbers_are_refused_by_name(value: float) -> None:
    assert list(wrong(spec(hyperparameters={"learning_rate": value}))) == ["hyperparameters.learning_rate"]


def test_truth_values_are_no_numbers_and_text_is_no_number() -> None:
    assert list(wrong(spec(hyperparameters={"num_epochs": True}))) == ["hyperparameters.num_epochs"]
    assert list(wrong(spec(hyperparameters={"num_epochs": "1"}))) == ["hyperparameters.num_epochs"]
    assert list(wrong(spec(hyperparameters={"num_epochs": 1.5}))) == ["hyperparameters.num_epochs"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(data=json_values, name=st.sampled_from([*GrpoHyperparameters.model_fields, "x"]), value=json_values)
def test_junk_gets_an_answer_and_never_another_exception(data: object, name: str, value: object) -> None:
    for junk in (data, spec(hyperparameters={name: value}), spec(rewards=data), spec(hyperparameters=data)):
        parsed, found = check_job_spec(junk)
        assert (parsed is None) == bool(found)
        assert all(violation.field and violation.message for violation in found)


def test_json_text_of_a_field_is_an_object_or_refused() -> None:
    assert parse_json_object("", "hyperparameters_json") == {}
    assert parse_json_object('{"a": 50}', "x") == {"a": 50}
    for text in ("[1]", "{", "7", "null"):
        with pytest.raises(InvalidArgumentError) as caught:
            parse_json_object(text, "rewards[0].config")
        assert [violation.field for violation in caught.value.violations] == ["rewards[0].config"]


def test_a_spec_survives_its_own_json() -> None:
    parsed = parse_job_spec(spec(hyperparameters={"learning_rate": 1, "lora_rank": 16}))
    assert parse_job_spec(json.loads(parsed.model_dump_json())) == parsed
    assert parsed.hyperparameters.effective_lora_alpha == 16


@pytest.mark.parametrize(
    "name",
    [
        "max_steps", "max_prompt_length", "max_response_length", "global_batch_size", "top_k", "warmup_steps",
        "micro_batch_size", "checkpoint_keep", "checkpoint_every", "num_epochs", "seed", "lora_rank",
        "lora_alpha", "num_iterations", "rollouts_per_prompt",
    ],
)  # fmt: skip
def test_no_number_outgrows_the_integers_of_the_wire(name: str) -> None:
    found = wrong(spec(hyperparameters={name: 10**30}))
    assert found[f"hyperparameters.{name}"].startswith(f"{10**30} is refused: input should be less than or")


def test_a_timeout_that_a_clock_cannot_tell_from_none_is_refused() -> None:
    reward = {"server": "builtin", "reward": "exact_answer", "timeout_seconds": 1e-12}
    assert set(wrong(spec(rewards=[reward]))) == {"rewards[0].timeout_seconds"}


def test_an_accepted_spec_stays_readable_when_rules_change() -> None:
    accepted = parse_job_spec(spec(hyperparameters={"max_steps": 3, "stop_on": ["non_finite"]}))
    stored = json.loads(accepted.model_dump_json())
    assert accepted_job_spec(stored) == accepted
    stored["hyperparameters"] |= {"max_steps": 10**30, "of_another_version": 1}
    del stored["hyperparameters"]["top_k"]
    read = accepted_job_spec({**stored, "of_another_version": 1})
    assert read.hyperparameters.max_steps == 10**30
    assert read.hyperparameters.top_k == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read.model_dump(mode="json")["hyperparameters"]["stop_on"] == ["non_finite"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"seed": 1, "seed": 2}', 'the name "seed" stands twice in an object'),
        ('{"a": [{"b": 1, "c": 1, "b": 1}]}', 'the name "b" stands twice in an object'),
        ('{"seed": %s}' % ("9" * 5_000), "a whole number of 5,000 digits is more than can be read"),
    ],
)
def test_json_that_would_lose_something_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_json_object(text, "hyperparameters")
    assert caught.value.message == (
        f"hyperparameters: is not JSON ({fault}); send a JSON object, for example {{}}"
    )
