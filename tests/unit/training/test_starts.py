"""A run starts from what other jobs' checkpoints made of the base model, and so does an export of it."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch.optim import SGD

from plaudit.types.hyperparameters import GrpoHyperparameters
from trainer_service.training.export import export_model
from trainer_service.training.models import load_policy, lora_config
from trainer_service.training.starts import VerifiedInit, load_start

CPU = torch.device("cpu")
TINY = "builtin:tiny"
FULL = GrpoHyperparameters()
LORA = GrpoHyperparameters(lora_rank=4)
FOUR_BITS = GrpoHyperparameters(lora_rank=4, load_in_4bit=True)
PROBES = [[5, 9, 30, 41], [7, 8]]


def logits(model) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        return torch.cat([model(input_ids=torch.tensor([probe])).logits[0].float() for probe in PROBES])


def taught(model, seed: int):
    """Two steps of plain gradient descent on something."""
    torch.manual_seed(seed)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(2):
        ids = torch.randint(3, 200, (4, 8))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def adapters_on(start, hyperparameters, folder: Path, seed: int):
    """Trains adapters on a starting policy and saves them; returns the policy."""
    torch.manual_seed(seed)
    policy = taught(get_peft_model(start.model, lora_config(start.model, hyperparameters)), seed)
    policy.save_pretrained(folder)
    return policy


def adapters(folder: Path, *, on_four_bits: bool = False) -> VerifiedInit:
    return VerifiedInit(folder, on_four_bits)


def test_without_checkpoints_it_is_the_base_model():
    start = load_start(TINY, FULL, CPU)
    assert torch.equal(logits(start.model), logits(load_policy(TINY, FULL, CPU)[0]))
    assert not start.is_merged


def test_a_checkpoint_of_all_weights_is_the_start(tmp_path):
    model, tokenizer = load_policy(TINY, FULL, CPU)
    taught(model, 1).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    start = load_start(TINY, FULL, CPU, [VerifiedInit(tmp_path, False)])
    assert torch.equal(logits(start.model), logits(model))
    # Its name leads TRL to the same weights for the reference.
    assert start.model.config._name_or_path == str(tmp_path)
    assert not start.is_merged


def test_adapters_are_merged_and_everything_can_be_trained_on(tmp_path):
    policy = adapters_on(load_start(TINY, LORA, CPU), LORA, tmp_path, 1)
    expected = logits(policy)
    start = load_start(TINY, FULL, CPU, [adapters(tmp_path)])
    torch.testing.assert_close(logits(start.model), expected, rtol=0, atol=1e-4)
    assert (logits(load_policy(TINY, FULL, CPU)[0]) - expected).abs().max() > 0.1
    assert not isinstance(start.model, PeftModel)
    assert start.is_merged
    assert all(p.requires_grad for p in start.model.parameters())
    again = load_start(TINY, FULL, CPU, [adapters(tmp_path)])
    assert torch.equal(logits(again.model), logits(start.model))


def test_adapters_on_adapters_are_put_on_in_order(tmp_path):
    first = [adapters(tmp_path / "a")]
    adapters_on(load_start(TINY, LORA, CPU), LORA, tmp_path / "a", 1)
    policy = adapters_on(load_start(TINY, LORA, CPU, first), LORA, tmp_path / "b", 2)
    start = load_start(TINY, LORA, CPU, [*first, adapters(tmp_path / "b")])
    torch.testing.assert_close(logits(start.model), logits(policy), rtol=0, atol=1e-4)


def test_what_is_before_all_weights_does_not_count(tmp_path):
    adapters_on(load_start(TINY, LORA, CPU), LORA, tmp_path / "a", 1)
    model, tokenizer = load_policy(TINY, FULL, CPU)
    taught(model, 3).save_pretrained(tmp_path / "b")
    tokenizer.save_pretrained(tmp_path / "b")
    start = load_start(TINY, FULL, CPU, [adapters(tmp_path / "a"), VerifiedInit(tmp_path / "b", False)])
    assert torch.equal(logits(start.model), logits(model))


def test_adapters_of_a_base_of_four_bits_keep_that_base(tmp_path):
    policy = adapters_on(load_start(TINY, FOUR_BITS, CPU), FOUR_BITS, tmp_path, 1)
    expected = logits(policy)
    inits = [adapters(tmp_path, on_four_bits=True)]
    # Added in the passes, where the base stays in 4 bits; merged, where it does not.
    packed = load_start(TINY, FOUR_BITS, CPU, inits)
    torch.testing.assert_close(logits(packed.model), expected, rtol=0, atol=1e-4)
    whole = load_start(TINY, LORA, CPU, inits)
    torch.testing.assert_close(logits(whole.model), expected, rtol=0, atol=1e-3)
    assert {p.dtype for p in whole.model.parameters()} == {torch.float32}
    assert not whole.model.is_loaded_in_4bit
    # On the base as its files have it, they are another policy.
    assert (logits(load_start(TINY, LORA, CPU, [adapters(tmp_path)]).model) - expected).abs().max() > 0.01


def test_adapters_train_on_a_base_of_four_bits_with_adapters(tmp_path):
    adapters_on(load_start(TINY, FOUR_BITS, CPU), FOUR_BITS, tmp_path / "a", 1)
    inits = [adapters(tmp_path / "a", on_four_bits=True)]
    start = load_start(TINY, FOUR_BITS, CPU, inits)
    before = logits(start.model)
    policy = adapters_on(start, FOUR_BITS, tmp_path / "b", 2)
    with policy.disable_adapter():
        # The reference is the start, not the base model.
        assert torch.equal(logits(policy), before)
    again = load_start(TINY, FOUR_BITS, CPU, [*inits, adapters(tmp_path / "b", on_four_bits=True)])
    torch.testing.assert_close(logits(again.model), logits(policy), rtol=0, atol=1e-4)


@pytest.mark.parametrize("hyperparameters", [LORA, FOUR_BITS], ids=["whole", "four bits"])
def test_an_export_stands_on_the_same_start(tmp_path, hyperparameters):
    on_four_bits = hyperparameters.load_in_4bit
    adapters_on(load_start(TINY, hyperparameters, CPU), hyperparameters, tmp_path / "a", 1)
    inits = [adapters(tmp_path / "a", on_four_bits=on_four_bits)]
    policy = adapters_on(load_start(TINY, hyperparameters, CPU, inits), hyperparameters, tmp_path / "b", 2)
    expected = logits(policy)
    export_model(
        tmp_path / "b",
        tmp_path / "model",
        base_model=TINY,
        hyperparameters=hyperparameters,
        probes=PROBES,
        device=CPU,
        inits=inits,
    )
    exported, _ = load_policy(str(tmp_path / "model"), FULL, CPU)
    torch.testing.assert_close(logits(exported), expected, rtol=0, atol=1e-3)
