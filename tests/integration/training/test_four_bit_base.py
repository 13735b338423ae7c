"""QLoRA: adapters on a base of 4 bits, which trains, saves and goes on like any other run."""

from __future__ import annotations

import torch
from peft import get_peft_model
from run_harness import RunHere, binding, make_start
from safetensors.torch import load_file

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.metrics import TIMING_METRICS
from plaudit.types.statuses import RunState
from trainer_service.journal import CheckpointSaved
from trainer_service.training.models import load_policy, lora_config

FOUR_BITS = {"load_in_4bit": True, "lora_rank": 8, "learning_rate": 1e-3}


def untimed(metrics):
    return {
        name: value for name, value in metrics.items() if name not in TIMING_METRICS and "latency" not in name
    }


def test_the_base_holds_two_weights_in_a_byte_and_is_nearly_the_same_model() -> None:
    cpu = torch.device("cpu")
    whole, tokenizer = load_policy("builtin:tiny", GrpoHyperparameters(), cpu)
    small, _ = load_policy("builtin:tiny", GrpoHyperparameters(**FOUR_BITS), cpu)
    name = "model.layers.0.mlp.up_proj.weight"
    # Two weights of 4 bits to a byte.
    assert small.get_parameter(name).numel() == whole.get_parameter(name).numel() // 2
    assert small.get_parameter(name).dtype is torch.uint8
    text = tokenizer("What is 3 + 4?", return_tensors="pt")
    with torch.no_grad():
        difference = small(**text).logits - whole(**text).logits
        spread = whole(**text).logits.std()
    assert 0 < difference.abs().mean() < spread / 2


def test_gradients_pass_through_after_a_pass_without() -> None:
    settings = GrpoHyperparameters(**FOUR_BITS)
    model, tokenizer = load_policy("builtin:tiny", settings, torch.device("cpu"))
    model = get_peft_model(model, lora_config(model, settings))
    text = tokenizer("What is 3 + 4?", return_tensors="pt")
    model.eval()
    with torch.no_grad():
        sampled = model(**text).logits
    model.train()
    trained = model(**text).logits
    torch.testing.assert_close(trained, sampled)
    trained.logsumexp(-1).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if "lora_B" in name}
    assert all(gradient is not None and gradient.abs().max() > 0 for gradient in gradients.values())


def test_it_trains_and_goes_on_exactly(tmp_path, odd_server, dataset) -> None:
    rewards = [(binding("brevity"), odd_server)]
    run = RunHere(tmp_path, make_start(tmp_path, rewards, dataset=dataset, max_steps=4, **FOUR_BITS))
    assert run.go().state is RunState.COMPLETED
    half, end = run.entries(CheckpointSaved)

    def saved(checkpoint):
        return load_file(tmp_path / "artifacts" / checkpoint.uri / "adapter_model.safetensors")

    weights = saved(end)
    assert {w.dtype for w in weights.values()} == {torch.float32}
    # Adapters start as no change: their second halves are 0.
    assert all(w.abs().max() > 0 for name, w in weights.items() if "lora_B" in name)
    # Smaller steps than bfloat16 tells apart were taken.
    assert any(not torch.equal(w, w.bfloat16().float()) for w in weights.values())

    resumed = RunHere(
        tmp_path,
        make_start(
            tmp_path, rewards, dataset=dataset, max_steps=4, attempt=2, checkpoint_uri=half.uri, **FOUR_BITS
        ),
    )
    assert resumed.go().state is RunState.COMPLETED
    assert [untimed(m) for m in resumed.metrics()] == [untimed(m) for m in run.metrics()[2:]]
    again = load_file(
        tmp_path / "artifacts" / resumed.entries(CheckpointSaved)[-1].uri / "adapter_model.safetensors"
    )
    assert all(torch.equal(again[name], weights[name]) for name in weights)
