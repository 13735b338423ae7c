"""Each method has hyperparameters of its own, and its own need of rewards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import InitCheckpoint, accepted_job_spec
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.validation import check_job_spec, check_run_spec, parse_job_spec

REWARDS = [{"server": "builtin", "reward": "exact_answer"}]


def spec(**changes: Any) -> dict[str, Any]:
    base = {"base_model": "m", "dataset_id": "d", "output_name": "o", "method": "sft"}
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


def wrong(data: object) -> dict[str, str]:
    return {violation.field: violation.message for violation in check_job_spec(data)[1]}


def test_defaults_of_sft() -> None:
    hyperparameters = parse_job_spec(spec()).hyperparameters
    assert isinstance(hyperparameters, SftHyperparameters)
    # Written down from the documentation, not from the code.
    assert hyperparameters.model_dump() == {
        "learning_rate": 1e-5, "num_epochs": 1, "max_steps": None, "max_length": 2048,
        "global_batch_size": 64, "seed": 42, "lora_rank": None, "lora_alpha": None, "load_in_4bit": False,
        "use_unsloth": False, "lr_scheduler": "constant", "warmup_steps": 0, "weight_decay": 0.0,
        "max_grad_norm": 1.0, "micro_batch_size": None, "gradient_checkpointing": "auto", "dtype": "auto",
        "checkpoint_every": 0.1, "checkpoint_keep": 3,
    }  # fmt: skip


def test_the_method_decides_which_hyperparameters_there_are() -> None:
    assert isinstance(
        parse_job_spec(spec(method="grpo", rewards=REWARDS)).hyperparameters, GrpoHyperparameters
    )
    assert isinstance(parse_job_spec(spec(method=None, rewards=REWARDS)).hyperparameters, GrpoHyperparameters)
    assert wrong(spec(hyperparameters={"kl_coef": 0.1, "stop_on": [], "kl_coeff": 1})) == {
        "hyperparameters.kl_coef": "is a hyperparameter of grpo, and sft has none of this name; leave it out",
        "hyperparameters.stop_on": "is a hyperparameter of grpo, and sft has none of this name; leave it out",
        "hyperparameters.kl_coeff": "1: there is no such field; leave it out",
    }
    assert wrong(spec(method="grpo", rewards=REWARDS, hyperparameters={"max_length": 9})) == {
        "hyperparameters.max_length": "is a hyperparameter of sft, and grpo has none of this name; "
        "leave it out"
    }


def test_rewards_are_for_grpo() -> None:
    assert "asks no rewards; leave them out" in wrong(spec(rewards=REWARDS))["rewards"]
    assert wrong(spec(rewards=[])) == {}
    for none in ({}, {"rewards": []}):
        message = wrong(spec(method="grpo", **none))["rewards"]
        assert "needs at least one; for example" in message


@pytest.mark.parametrize(
    ("hyperparameters", "field", "way_out"),
    [
        ({"micro_batch_size": 24}, "micro_batch_size", "16 would work"),
        ({"lora_alpha": 8}, "lora_alpha", "set lora_rank"),
        ({"checkpoint_every": 2.5}, "checkpoint_every", "2 would work"),
        ({"max_steps": 10, "warmup_steps": 10}, "warmup_steps", "at most 9 would work"),
        ({"load_in_4bit": True}, "load_in_4bit", "set lora_rank"),
        ({"max_length": 0}, "max_length", "for example 2048"),
        ({"max_length": 10**30}, "max_length", "less than or equal to 10000000"),
        ({"learning_rate": 0}, "learning_rate", "greater than 0"),
        ({"global_batch_size": 0}, "global_batch_size", "for example 64"),
    ],
)
def test_sft_has_the_rules_that_it_shares(hyperparameters: dict[str, Any], field: str, way_out: str) -> None:
    found = wrong(spec(hyperparameters=hyperparameters))
    assert list(found) == [f"hyperparameters.{field}"]
    assert way_out in found[f"hyperparameters.{field}"]


def test_everything_wrong_is_told_whatever_the_method() -> None:
    assert set(wrong(spec(method="dpo", output_name="", hyperparameters={"learning_rate": "fast"}))) == {
        "method",
        "output_name",
        "hyperparameters.learning_rate",
    }
    assert set(wrong(spec(method=["sft"]))) == {"method"}
    assert set(wrong(spec(hyperparameters=7))) == {"hyperparameters"}


def test_a_stored_job_is_read_with_its_method() -> None:
    accepted = parse_job_spec(spec(hyperparameters={"max_length": 9}, resume_from="job_1@3"))
    read = accepted_job_spec(json.loads(accepted.model_dump_json()))
    assert read == accepted
    assert isinstance(read.hyperparameters, SftHyperparameters)
    assert parse_job_spec(json.loads(accepted.model_dump_json())) == accepted


def test_a_run_spec_says_what_it_starts_from() -> None:
    data = {
        "base_model": "m", "output_name": "o", "method": "sft", "hyperparameters": {"max_length": 9},
        "dataset": {"uri": "datasets/a.parquet", "sha256": "a", "row_count": 3}, "rewards": [],
        "init_checkpoints": [{"uri": "jobs/a/start-1/checkpoint-000003", "on_four_bits": True}],
    }  # fmt: skip
    run, violations = check_run_spec(data)
    assert run is not None, violations
    assert run.init_checkpoints == (
        InitCheckpoint(uri="jobs/a/start-1/checkpoint-000003", on_four_bits=True),
    )
    assert isinstance(run.hyperparameters, SftHyperparameters)
    again, _ = check_run_spec(json.loads(run.model_dump_json()))
    assert again == run
    assert [v.field for v in check_run_spec({**data, "method": "grpo"}, "spec_json")[1]] == [
        "spec_json.hyperparameters.max_length",
        "spec_json.rewards",
    ]
