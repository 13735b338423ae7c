"""The check at the start: which architectures share a pass over a prompt, and what keeps them from it."""

import pytest
import torch
from accelerate import Accelerator
from training_bench import load_model
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head, disable_dropout_in_model

from trainer_service.training import shared_prompts
from trainer_service.training.forward_check import check_prompt_sharing

PROMPTS = [[3, 1, 4, 15, 9, 2, 6, 5, 35], [8, 9, 7], [23, 8, 46]]
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    "initializer_range": 0.3,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
SHARING = {
    "qwen2": {},
    "qwen3": {},
    "llama": {},
    "smollm3": {},
    "mistral": {"sliding_window": 4},
    "phi3": {"original_max_position_embeddings": 128},
    "gemma2": {"sliding_window": 4, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 4, "query_pre_attn_scalar": 8, "sliding_window_pattern": 2},
    "gpt2": {},
    "gpt_neox": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0},
    "qwen3_moe": {**EXPERTS, "num_experts": 4},
    "gpt_oss": {"num_experts_per_tok": 2, "num_local_experts": 4, "sliding_window": 4},
}
NOT_WITH_CHECKPOINTING = {"gpt2"}
"""The model itself takes the cache from its layers."""

NOT_SHARING = {
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "bloom": {},
}


def model_of(kind, extra):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SMALL, **extra})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    disable_dropout_in_model(model)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


def check(model):
    return check_prompt_sharing(model, Accelerator(cpu=True), PROMPTS, 0)


@pytest.mark.parametrize("kind", SHARING)
def test_shares(kind):
    model = model_of(kind, SHARING[kind])
    result = check(model)
    assert result.exact, result.detail
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert check(model).exact is (kind not in NOT_WITH_CHECKPOINTING)


@pytest.mark.parametrize("kind", NOT_SHARING)
def test_does_not_share(kind):
    result = check(model_of(kind, NOT_SHARING[kind]))
    assert not result.exact
    assert result.detail.endswith("every completion reads its prompt")


def fused(model_dir):
    model = load_model(model_dir)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (lambda keys, values: (keys.roll(1, dims=2), values), "other log-probabilities"),
        (lambda keys, values: (keys.detach(), values.detach()), "other gradients"),
    ],
)
def test_finds_what_is_not_exact(model_dir, monkeypatch, fault, found):
    update = shared_prompts._RecordingLayer.update

    def faulty(layer, *states, **_):
        update(layer, *states)
        layer.keys, layer.values = fault(layer.keys, layer.values)
        return states

    assert check(fused(model_dir)).exact
    monkeypatch.setattr(shared_prompts._RecordingLayer, "update", faulty)
    result = check(fused(model_dir))
    assert not result.exact and found in result.detail, result.detail
