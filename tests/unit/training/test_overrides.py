"""TRL and transformers are what we took them for: a new version that differs fails here first."""

import inspect

import pytest
from transformers import Trainer
from trl import GRPOTrainer, SFTTrainer

from trainer_service.training.four_bits import FOUR_BIT_DEPENDENCIES
from trainer_service.training.overrides import DEPENDENCIES, completion_positions_only, source_digest
from trainer_service.training.run_trainer import RunTrainer
from trainer_service.training.sft.trainer import SftRunTrainer
from trainer_service.training.trainer import GrpoTrainer

PAIRS = [(GrpoTrainer, GRPOTrainer), (SftRunTrainer, SFTTrainer)]
by_method = pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["grpo", "sft"])


def overridden(ours, theirs):
    """What is listed as overridden, of TRL's trainer or of what it inherits, and is by our class."""
    return [
        d
        for d in DEPENDENCIES
        if d.kind == "overridden"
        and getattr(theirs, d.code.__name__, None) is d.code
        and getattr(ours, d.code.__name__) is not d.code
    ]


@pytest.mark.parametrize(
    "dependency", [*DEPENDENCIES, *FOUR_BIT_DEPENDENCIES], ids=lambda d: d.code.__qualname__
)
def test_foreign_code_is_as_it_was(dependency):
    assert source_digest(dependency.code) == dependency.sha256, (
        f"{dependency.code.__module__}.{dependency.code.__qualname__} has changed, which is "
        f"{dependency.kind} because it {dependency.why}; read the change, then write down the new digest"
    )


@by_method
def test_every_override_is_listed(ours, theirs):
    names = {
        name
        for owner in (ours, RunTrainer)
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and hasattr(theirs, name)
    }
    assert names == {d.code.__name__ for d in overridden(ours, theirs)}


def test_every_entry_is_of_a_trainer_that_we_use():
    used = {d.code for pair in PAIRS for d in overridden(*pair)}
    assert {d.code for d in DEPENDENCIES if d.kind == "overridden"} == used


@by_method
def test_every_override_takes_what_trl_passes(ours, theirs):
    for dependency in overridden(ours, theirs):
        if dependency.code.__name__ == "__init__":
            continue
        passed = inspect.signature(dependency.code).parameters
        taken = inspect.signature(getattr(ours, dependency.code.__name__)).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values())
        assert takes_any or set(passed) == set(taken), dependency.code.__qualname__


@by_method
def test_no_name_of_trl_means_something_else_to_us(ours, theirs):
    """Attributes that we set on the trainer must not be ones that TRL or transformers set."""
    source = inspect.getsource(theirs) + inspect.getsource(Trainer)
    names = {
        name
        for owner in (ours, RunTrainer)
        for name in _attributes_set_in(inspect.getsource(owner))
        if f"self.{name} =" in source or f"self.{name}:" in source
    }
    assert names == set()


def _attributes_set_in(source):
    for line in source.splitlines():
        stripped = line.strip()
        if stripped.startswith("self.") and "=" in stripped:
            yield stripped.removeprefix("self.").split("=")[0].split(":")[0].strip()


def test_the_patch_is_taken_back():
    import torch
    import trl.trainer.utils as utils

    original = utils._use_triton
    with pytest.raises(ZeroDivisionError), completion_positions_only():
        assert utils._use_triton(torch.device("cpu"))
        raise ZeroDivisionError
    assert utils._use_triton is original
