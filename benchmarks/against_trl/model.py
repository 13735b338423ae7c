"""Writes the model of both sides: a random Qwen3 of five million parameters, the same every time.

python -m against_trl.model FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from against_trl.work import FIRST_WORD, VOCABULARY

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|> ' + message['role'] + '\n' + message['content'] + ' <|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|> assistant\n' }}{% endif %}"
)


def main(folder: Path) -> None:
    """Writes model and tokenizer."""
    words = [PAD, START, END, "system", "user", "assistant"]
    assert len(words) == FIRST_WORD
    words += [f"w{token}" for token in range(FIRST_WORD, VOCABULARY)]
    rules = Tokenizer(WordLevel({word: token for token, word in enumerate(words)}, unk_token=PAD))
    rules.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=rules,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        padding_side="left",
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    end = words.index(END)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=5,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=words.index(PAD),
        )
    )
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=end, pad_token_id=words.index(PAD), do_sample=True
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
