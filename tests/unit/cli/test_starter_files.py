"""What `plaudit init` writes: a job that is good as it is, with every field, in the words of the types."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plaudit.cli._main import app
from plaudit.cli._starter import REWARD_FILE, job_file, rows_file
from plaudit.cli._toml import job_as_toml, toml_value
from plaudit.errors import FailedPreconditionError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import RewardBinding, TrainingJobSpec
from plaudit.types.validation import parse_job_spec

NEEDS = {"eval_every": "eval_dataset_id"}
"""Fields that have no effect without another."""


def uncommented(name: str) -> str:
    """The job file with the comment of one field taken away, and of the one that it needs."""
    starts = tuple(f"# {field} = " for field in (name, NEEDS.get(name, name)))
    return "".join(
        line.removeprefix("# ") if line.startswith(starts) else line
        for line in job_file().splitlines(keepends=True)
    )


def test_the_job_is_good_as_it_is() -> None:
    spec = parse_job_spec(tomllib.loads(job_file()))
    assert (spec.base_model, spec.dataset_id, spec.rewards[0].reward) == (
        "builtin:tiny",
        "builtin:additions",
        "exact_answer",
    )


@pytest.mark.parametrize("model", [TrainingJobSpec, GrpoHyperparameters, RewardBinding])
def test_every_field_stands_there_with_its_meaning_and_its_default(model: type) -> None:
    text = job_file()
    words = " ".join(text.replace("#", " ").split())
    for name, field in model.model_fields.items():
        if name not in ("hyperparameters", "rewards"):
            assert f"{name} = " in text or f"# {name} is not set" in text, name
            assert field.description.split(" null:")[0] in words
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            assert default is None or f"Default: {toml_value(default)}." in words


@pytest.mark.parametrize("name", [n for n in GrpoHyperparameters.model_fields if f"\n# {n} = " in job_file()])
def test_a_field_whose_comment_is_taken_away_is_read(name: str) -> None:
    data = tomllib.loads(uncommented(name))
    assert name in data["hyperparameters"]
    parse_job_spec(data)


def test_rows_and_reward_go_together() -> None:
    scope: dict[str, object] = {}
    exec(REWARD_FILE, scope)
    rows = [json.loads(line) for line in rows_file().splitlines()]
    assert [eval(row["prompt"][len("What is ") : -1]) for row in rows] == [row["answer"] for row in rows]
    right = [f"<answer>{row['answer']}</answer>" for row in rows]
    wrong = [f"<answer> {row['answer'] + 1} </answer>" for row in rows]
    answers = [row["answer"] for row in rows]
    assert scope["reward"](prompts=[], completions=right, answer=answers) == [1.0] * 8
    assert scope["reward"](prompts=[], completions=wrong, answer=answers) == [0.1] * 8
    assert scope["reward"](prompts=[], completions=["19"] * 8, answer=answers) == [0.0] * 8


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert CliRunner().invoke(app, ["init", str(folder)]).exit_code == 0
    (folder / "job.toml").write_text("mine")
    (folder / "reward.py").unlink()
    refused = CliRunner().invoke(app, ["init", str(folder)])
    assert isinstance(refused.exception, FailedPreconditionError)
    assert str(folder / "job.toml") in refused.exception.message
    assert "reward.py" not in refused.exception.message
    assert (folder / "job.toml").read_text() == "mine"
    assert not (folder / "reward.py").exists()
    assert CliRunner().invoke(app, ["init", str(folder), "--force"]).exit_code == 0
    assert (folder / "job.toml").read_text() == job_file()


HARD = 'quote " back \\ line \n bell \x07 del \x7f ünïcode'
"""A text that a TOML file must escape."""


def test_a_resolved_spec_is_a_job_file() -> None:
    data = {
        "base_model": "models/ünïcode",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "hyperparameters": {"learning_rate": 1e-6, "stop_on": ["policy_collapse"], "lora_rank": 4},
        "rewards": [
            {"server": "a", "reward": "r", "config": {"x y": [1, HARD, {"deep": True}], "none": None}},
            {"server": "b", "reward": "q", "weight": -0.5},
        ],
    }
    spec = parse_job_spec(data)
    again = parse_job_spec(tomllib.loads(job_as_toml(spec)))
    # TOML cannot say null: in a config it is left out.
    config = {"x y": [1, HARD, {"deep": True}]}
    assert again.rewards[0].config == config
    assert again.model_dump() == {**spec.model_dump(), "rewards": again.model_dump()["rewards"]}
