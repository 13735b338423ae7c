"""`--set`: what it sets, and what it says where there is no such field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from plaudit.cli._overrides import with_overrides

JOB: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "hyperparameters": {"max_steps": 10},
    "rewards": [
        {"server": "a", "reward": "r"},
        {"server": "b", "reward": "q", "config": {"tags": ["x", "y"]}},
    ],
}


@pytest.mark.parametrize(
    ("pair", "path", "value"),
    [
        ("hyperparameters.max_steps=50", ("hyperparameters", "max_steps"), 50),
        ("hyperparameters.lora_rank=null", ("hyperparameters", "lora_rank"), None),
        ("hyperparameters.learning_rate=2e-4", ("hyperparameters", "learning_rate"), 2e-4),
        ("output_name=a=b", ("output_name",), "a=b"),
        ("rewards[0].weight=0.5", ("rewards", 0, "weight"), 0.5),
        ("rewards[1].config.tags[1]=z", ("rewards", 1, "config", "tags", 1), "z"),
        ("rewards[0].config.tag=final", ("rewards", 0, "config", "tag"), "final"),
        ('rewards=[{"server": "c", "reward": "s"}]', ("rewards", 0, "server"), "c"),
    ],
)
def test_a_field_is_set_and_nothing_else(pair: str, path: tuple[Any, ...], value: object) -> None:
    before = repr(JOB)
    changed, wrong = with_overrides(JOB, [pair])
    assert not wrong
    place: Any = changed
    assert place["base_model"] == "builtin:tiny"
    for step in path:
        place = place[step]
    assert place == value
    assert repr(JOB) == before


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("hyperparameters.max_step=5", "did you mean hyperparameters.max_steps"),
        ("max_steps=5", "did you mean hyperparameters.max_steps?"),
        ("hyperparameter.seed=5", "did you mean hyperparameters?"),
        ("rewards[0].wieght=5", "did you mean rewards[0].weight?"),
        ("rewards[0].zzz=5", "there are name, server, reward, weight"),
        ("rewards[2].weight=5", "the last entry of rewards is rewards[1]"),
        ("base_model.x=5", "base_model holds no fields"),
        ("base_model[0]=5", "base_model is no list here"),
        ("nothing", "write FIELD=VALUE"),
        ("=5", "write FIELD=VALUE"),
        ("a..b=5", "write FIELD=VALUE"),
        ("rewards[x]=5", "write FIELD=VALUE"),
    ],
)
def test_what_cannot_be_set_is_told_with_the_nearest_names(pair: str, told: str) -> None:
    changed, wrong = with_overrides(JOB, [pair, "also wrong", "output_name=good"])
    assert len(wrong) == 2
    assert told in wrong[0].message
    # What is good is set, so that the rest of the job can be checked.
    assert changed == {**JOB, "output_name": "good"}


def test_an_entry_of_what_is_not_there_is_refused() -> None:
    changed, [wrong] = with_overrides({}, ["rewards[0].weight=1"])
    assert changed == {}
    assert "rewards is no list here; set it as a whole" in wrong.message


def test_a_path_into_what_is_cloned_starts_from_what_it_has() -> None:
    source = {**JOB, "hyperparameters": {"max_steps": 10, "seed": 3, "stop_on": ["a", "b"]}}
    before = repr(source)
    pairs = ["rewards[1].config.tags[1]=z", "rewards[0].weight=0.5", "hyperparameters.max_steps=20"]
    assert with_overrides({}, pairs, of=source) == (
        {
            "rewards": [
                {"server": "a", "reward": "r", "weight": 0.5},
                {"server": "b", "reward": "q", "config": {"tags": ["x", "z"]}},
            ],
            # One by one: what is not named stays as it is, without a word.
            "hyperparameters": {"max_steps": 20},
        },
        [],
    )
    assert with_overrides({}, ["hyperparameters.stop_on[1]=c"], of=source) == (
        {"hyperparameters": {"stop_on": ["a", "c"]}},
        [],
    )
    # What is set as a whole is not the source's any more.
    assert with_overrides({}, ['rewards=[{"server": "c"}]', "rewards[0].reward=s"], of=source) == (
        {"rewards": [{"server": "c", "reward": "s"}]},
        [],
    )
    assert repr(source) == before


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("rewards[2].weight=5", r"'?rewards\[2\].weight=5.* the last entry of rewards is rewards\[1\]"),
        ("rewards[0].config.tags[0]=x", "rewards\\[0\\].config.tags is no list here"),
        ("hyperparameters.stop_on[0]=x", "hyperparameters.stop_on is no list here"),
    ],
)
def test_an_entry_that_the_source_lacks_is_refused(pair: str, told: str) -> None:
    changed, [wrong] = with_overrides({}, [pair], of=JOB)
    assert changed == {}
    assert re.search(told, wrong.message)
