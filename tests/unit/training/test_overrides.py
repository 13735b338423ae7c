"""TRL and transformers are what we took them for: a new version that differs fails here first."""

import inspect

import pytest
from transformers import Trainer
from trl import GRPOTrainer

from trainer_service.training.overrides import DEPENDENCIES, completion_positions_only, source_digest
from trainer_service.training.trainer import GrpoTrainer


@pytest.mark.parametrize("dependency", DEPENDENCIES, ids=lambda d: d.code.__qualname__)
def test_foreign_code_is_as_it_was(dependency):
    assert source_digest(dependency.code) == dependency.sha256, (
        f"{dependency.code.__module__}.{dependency.code.__qualname__} has changed, which is "
        f"{dependency.kind} because it {dependency.why}; read the change, then write down the new digest"
    )


def test_every_override_is_listed():
    ours = {
        name
        for name, member in vars(GrpoTrainer).items()
        if inspect.isfunction(member) and (hasattr(GRPOTrainer, name) or hasattr(Trainer, name))
    }
    listed = {d.code.__name__ for d in DEPENDENCIES if d.kind == "overridden"}
    assert ours == listed


def test_every_override_takes_what_trl_passes():
    for dependency in DEPENDENCIES:
        if dependency.kind != "overridden" or dependency.code.__name__ == "__init__":
            continue
        theirs = inspect.signature(dependency.code).parameters
        ours = inspect.signature(getattr(GrpoTrainer, dependency.code.__name__)).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in ours.values())
        assert takes_any or set(theirs) == set(ours), dependency.code.__qualname__


def test_no_name_of_trl_means_something_else_to_us():
    """Attributes that we set on the trainer must not be ones that TRL or transformers set."""
    source = inspect.getsource(GRPOTrainer) + inspect.getsource(Trainer)
    ours = {
        name
        for name in _attributes_set_in(inspect.getsource(GrpoTrainer))
        if f"self.{name} =" in source or f"self.{name}:" in source
    }
    assert ours == set()


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
