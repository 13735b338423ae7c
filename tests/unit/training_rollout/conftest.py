"""Tokenizers of several kinds, made here: no model hub is needed."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    """Makes a tokenizer in which every byte is a token, beside the special tokens."""

    def make(chat_template: str | None = CHATML, **named: str) -> PreTrainedTokenizerFast:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        core = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        core.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
        core.add_tokens([AddedToken("<think>", special=False), AddedToken("</think>", special=False)])
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=core, **({"eos_token": "<|endoftext|>", "padding_side": "left"} | named)
        )
        tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[1:3]})
        tokenizer.chat_template = chat_template
        return tokenizer

    return make
