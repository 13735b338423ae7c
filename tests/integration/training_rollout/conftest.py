"""Small random models of several architectures, in float64, so that equal means equal."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable, Iterator

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 61

_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.4,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    "max_position_embeddings": 256,
}

_MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_SHAPE, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_SHAPE, head_dim=16)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE)),
    # Learned positions.
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=256,
            initializer_range=0.4,
            bos_token_id=None,
            eos_token_id=None,
        )
    ),
    # A window shorter than the prompts, in every other layer.
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **(_SHAPE | {"initializer_range": 0.1}),
            head_dim=8,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention"],
        )
    ),
    # A convolution's state in place of keys and values, in every other layer.
    "lfm2": lambda: Lfm2ForCausalLM(
        Lfm2Config(**(_SHAPE | {"initializer_range": 0.2}), layer_types=["conv", "full_attention"])
    ),
    # No position ids: our loop cannot run it.
    "bloom": lambda: BloomForCausalLM(
        BloomConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            n_layer=2,
            n_head=4,
            initializer_range=0.4,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
    ),
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_model() -> Callable[[str], PreTrainedModel]:
    """Makes a fresh model by the name of its architecture: the same weights each time, in training mode."""

    def make(name: str) -> PreTrainedModel:
        torch.manual_seed(5)
        model = _MAKERS[name]().double()
        model.train()
        return model

    return make
