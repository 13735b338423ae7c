"""The hyperparameters of adapters have the effect that their descriptions promise."""

import pytest
import torch
from peft import get_peft_model
from training_bench import load_model

from plaudit.types.hyperparameters import GrpoHyperparameters
from trainer_service.training.models import lora_config

PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def adapted(model_dir, **hyperparameters):
    model = load_model(model_dir)
    return get_peft_model(model, lora_config(model, GrpoHyperparameters(**hyperparameters)))


@pytest.mark.parametrize("rank", [1, 5])
def test_lora_rank(model_dir, rank):
    trained = {n: p for n, p in adapted(model_dir, lora_rank=rank).named_parameters() if p.requires_grad}
    assert all("lora_A" in name or "lora_B" in name for name in trained)
    assert {name.split(".")[-4] for name in trained} == PROJECTIONS
    assert {p.shape[0] for name, p in trained.items() if "lora_A" in name} == {rank}
    assert {p.shape[1] for name, p in trained.items() if "lora_B" in name} == {rank}


@pytest.mark.parametrize(("alpha", "scale"), [(None, 1.0), (4, 1.0), (16, 4.0), (2, 0.5)])
def test_lora_alpha(model_dir, alpha, scale):
    """What an adapter adds is B A x, alpha / rank times."""
    layer = adapted(model_dir, lora_rank=4, lora_alpha=alpha).base_model.model.model.layers[0].mlp.up_proj
    with torch.no_grad():
        for part in (layer.lora_A["default"], layer.lora_B["default"]):
            torch.nn.init.normal_(part.weight, generator=torch.Generator().manual_seed(1))
        x = torch.randn(3, 32, generator=torch.Generator().manual_seed(2))
        added = layer(x) - layer.base_layer(x)
        expected = scale * x @ layer.lora_A["default"].weight.T @ layer.lora_B["default"].weight.T
    assert torch.allclose(added, expected, atol=1e-4)
