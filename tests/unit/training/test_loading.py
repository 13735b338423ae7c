"""A process of training leaves out what its job does not need, and only that."""

import gc
import sys
from importlib.util import find_spec

import pytest

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import DatasetReference, InitCheckpoint, RewardBinding, RewardTarget, RunSpec
from trainer_service.training.loading import lighten, loaded

ON_FOUR_BITS = InitCheckpoint(uri="jobs/a/attempt-1/checkpoint-000002", on_four_bits=True)
ON_ALL = InitCheckpoint(uri="jobs/b/attempt-1/checkpoint-000002", on_four_bits=False)


def spec(*inits, **hyperparameters):
    return RunSpec(
        base_model="builtin:tiny",
        output_name="adder",
        method="grpo",
        hyperparameters=GrpoHyperparameters(lora_rank=4, **hyperparameters),
        dataset=DatasetReference(uri="datasets/a.parquet", sha256="0" * 64, row_count=1),
        rewards=(
            RewardTarget(binding=RewardBinding(name="r", server="s", reward="r"), addresses=("127.0.0.1:1",)),
        ),
        init_checkpoints=inits,
    )


@pytest.fixture
def modules(monkeypatch):
    """sys.modules as they are before bitsandbytes is imported, and as they were afterwards."""
    # So that it is undone whether it was there before or not.
    monkeypatch.setitem(sys.modules, "bitsandbytes", sys)
    del sys.modules["bitsandbytes"]
    yield sys.modules
    gc.enable()


@pytest.mark.parametrize(
    ("asked", "left_out"),
    [
        (spec(), True),
        (spec(ON_ALL), True),
        (spec(load_in_4bit=True), False),
        (spec(ON_ALL, ON_FOUR_BITS), False),
        (spec(use_unsloth=True), False),
    ],
    ids=["plain", "from adapters", "four bits", "from adapters on four bits", "unsloth"],
)
def test_bitsandbytes_is_left_out_where_no_weight_is_of_four_bits(modules, asked, left_out):
    lighten(asked)
    assert ("bitsandbytes" in modules) is left_out
    # How peft and transformers look for it.
    assert (find_spec("bitsandbytes") is None) is left_out
    assert not gc.isenabled()
    loaded()
    assert gc.isenabled()


def test_what_is_collected_here_is_not_frozen():
    """A run inside another process, as in the tests, freezes nothing of that process."""
    frozen = gc.get_freeze_count()
    loaded()
    assert gc.get_freeze_count() == frozen
