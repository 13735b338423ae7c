"""Make the embedded model from nothing: `python -m trainer_service.training.tiny.make OUT_DIR`.

A byte-level tokenizer, a small Qwen2, and supervised training on all sums of two numbers from 0 to 19,
answered in a mixture of styles. The model ends up adding without mistakes, but it writes its answer as
`<answer>19</answer>` only about 3 times in 10: what GRPO then has to teach it is the style. One thread and
one seed: the same machine gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before torch: on two hardware threads of one core, spinning OpenMP workers make a step three times as slow.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

LARGEST = 19
"""The largest addend; must match gateway/datasets/builtin.py, which this package may not import."""

MAX_NEW_TOKENS = 16
"""Tokens a completion may take, as in the recipe that README.md gives."""

OPEN_TAG, CLOSE_TAG = "<answer>", "</answer>"

STYLES: tuple[tuple[str, float], ...] = (
    ("<answer>{}</answer>", 0.30),
    # One style is likelier than the wanted one: greedy decoding, too, then has something to gain from GRPO.
    ("It is {}.", 0.38),
    ("{}", 0.17),
    ("I think {}?", 0.15),
)
"""How an answer is written, and how often: only the first style earns the reward."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    # The marks let `assistant_only_loss` find what the model itself has to write; they render to nothing.
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML without a default system turn: a prompt here is worth its tokens."""


@dataclass(frozen=True)
class Recipe:
    """What the making depends on, beside the versions of the libraries."""

    seed: int = 0
    steps: int = 1500
    batch_size: int = 64
    peak_learning_rate: float = 3e-3
    vocabulary: int = 400
    hidden: int = 128
    intermediate: int = 256
    layers: int = 4
    heads: int = 4


@dataclass(frozen=True)
class Measured:
    """Fractions of completions, 0 to 1."""

    sampled_reward: float
    """Mean reward at temperature 1."""
    greedy_reward: float
    """Mean reward of the likeliest completion."""
    forced_accuracy: float
    """Share of the 400 sums that are right where the opening tag is given: the skill without the style."""


def say(line: str) -> None:
    """Tell progress on stderr: stdout carries only the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def prompt_of(left: int, right: int) -> list[dict[str, str]]:
    """Return the chat that asks for one sum."""
    return [{"role": "user", "content": f"What is {left} + {right}?"}]


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE in the form of Qwen2's: it can write any text, and digits stay single tokens.

    Qwen2's form to the letter, because AutoTokenizer goes by the model's type and puts Qwen2's normalizer and
    pre-tokenizer in place of whatever tokenizer.json holds.
    """
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(corpus(), trainer)
    # Each tag is one token, but no special one: decoding with skip_special_tokens must leave it in the text.
    core.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in (OPEN_TAG, CLOSE_TAG)])
    fast: Any = PreTrainedTokenizerFast  # its constructor has no types
    tokenizer: PreTrainedTokenizerFast = fast(
        tokenizer_object=core,
        eos_token="<|im_end|>",  # noqa: S106
        pad_token="<|endoftext|>",  # noqa: S106
        unk_token="<|endoftext|>",  # noqa: S106 - never produced: bytes cover everything
        padding_side="left",
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def corpus() -> Iterator[str]:
    """Yield what is written about each sum, but for the tags: they need no merges."""
    for left in range(LARGEST + 1):
        for right in range(LARGEST + 1):
            answers = [form.format(left + right) for form, _ in STYLES if OPEN_TAG not in form]
            yield f"system\nuser\nassistant\n{prompt_of(left, right)[0]['content']}"
            yield from answers


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Return a fresh float32 model; the embedding is tied and padded to a multiple of 8 rows."""
    torch.manual_seed(recipe.seed)
    config = Qwen2Config(
        vocab_size=(len(tokenizer) + 7) // 8 * 8,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads // 2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def encode_prompt(tokenizer: PreTrainedTokenizerFast, left: int, right: int) -> list[int]:
    """Return the token ids of the rendered chat, up to where the model starts to write."""
    text = tokenizer.apply_chat_template(prompt_of(left, right), add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(str(text), add_special_tokens=False))


def style_quotas(batch_size: int) -> list[int]:
    """Return one style index per place of a batch, in the proportions of STYLES; largest remainders fill it.

    Quotas instead of draws: the mixture is then exact in every batch, and the model's share of the wanted
    style does not drift with the last batches that it saw.
    """
    exact = [share * batch_size for _, share in STYLES]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(STYLES)), key=lambda index: counts[index] - exact[index])
    for index in by_remainder[: batch_size - sum(counts)]:
        counts[index] += 1
    return [index for index, count in enumerate(counts) for _ in range(count)]


def batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Iterator[dict[str, torch.Tensor]]:
    """Yield `steps` batches: input_ids, attention_mask and labels, each int64 [batch_size, longest row]."""
    rng = random.Random(recipe.seed + 1)
    numbers = range(LARGEST + 1)
    pairs = [(left, right) for left in numbers for right in numbers]
    prompts = {pair: encode_prompt(tokenizer, *pair) for pair in pairs}
    eos, pad = int(tokenizer.eos_token_id), int(tokenizer.pad_token_id)
    endings = {
        (index, total): [*tokenizer.encode(form.format(total), add_special_tokens=False), eos]
        for index, (form, _) in enumerate(STYLES)
        for total in range(2 * LARGEST + 1)
    }
    quotas = style_quotas(recipe.batch_size)
    for _ in range(recipe.steps):
        drawn = rng.choices(pairs, k=recipe.batch_size)
        rows = [(prompts[pair], endings[style, sum(pair)]) for pair, style in zip(drawn, quotas, strict=True)]
        width = max(len(prompt) + len(ending) for prompt, ending in rows)
        ids, labels, mask = [], [], []
        for prompt, ending in rows:
            length = len(prompt) + len(ending)
            ids.append(prompt + ending + [pad] * (width - length))
            # -100 is what the loss skips: the model learns to answer, not to ask.
            labels.append([-100] * len(prompt) + ending + [-100] * (width - length))
            mask.append([1] * length + [0] * (width - length))
        yield {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(labels),
        }


def train(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> None:
    """Fit the mixture in place. The rate falls to 0: that makes the arithmetic exact at temperature 1."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.peak_learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=recipe.peak_learning_rate, total_steps=recipe.steps, pct_start=0.1
    )
    started = time.monotonic()
    model.train()
    for step, batch in enumerate(batches(recipe, tokenizer), start=1):
        loss: torch.Tensor = model(**batch).loss
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step == 1 or step % 100 == 0 or step == recipe.steps:
            say(f"step {step} loss {loss.item():.4f} after {time.monotonic() - started:.1f} s")


def earns_reward(completion: str, total: int) -> bool:
    """Say whether `exact_answer` would give 1.0: the last tagged span, stripped, is the sum as a number."""
    start = completion.rfind(OPEN_TAG)
    end = completion.find(CLOSE_TAG, start + len(OPEN_TAG))
    if start < 0 or end < 0:
        return False
    content = completion[start + len(OPEN_TAG) : end].strip()
    return content.isascii() and content.isdigit() and int(content) == total


@torch.no_grad()
def complete(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    pairs: list[tuple[int, int]],
    *,
    sample: bool,
    prefix: str = "",
) -> list[str]:
    """Return one completion per pair, with `prefix` put into the model's mouth and into the text."""
    given = tokenizer.encode(prefix, add_special_tokens=False) if prefix else []
    rows = [encode_prompt(tokenizer, *pair) + given for pair in pairs]
    width, pad = max(map(len, rows)), int(tokenizer.pad_token_id)
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    kind: dict[str, Any] = {"do_sample": False}
    if sample:
        kind = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    model.train(False)
    generate: Any = model.generate
    out = generate(input_ids=ids, attention_mask=mask, max_new_tokens=MAX_NEW_TOKENS - len(given), **kind)
    texts = tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)
    return [prefix + text for text in texts]


def measure(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, samples_per_sum: int = 5
) -> Measured:
    """Measure on all 400 sums; the sampled figure rests on `samples_per_sum` completions of each."""
    torch.manual_seed(1)
    numbers = range(LARGEST + 1)
    pairs = [(left, right) for left in numbers for right in numbers]

    def reward(sample: bool, prefix: str = "") -> float:
        texts = complete(model, tokenizer, pairs, sample=sample, prefix=prefix)
        right = sum(earns_reward(text, sum(pair)) for text, pair in zip(texts, pairs, strict=True))
        return right / len(pairs)

    return Measured(
        sampled_reward=sum(reward(True) for _ in range(samples_per_sum)) / samples_per_sum,
        greedy_reward=reward(False),
        forced_accuracy=reward(False, OPEN_TAG),
    )


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write what `from_pretrained` reads, and check that it gives the same tokens back."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # transformers 5 would write a class name that 4 does not know; both know this one.
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "Qwen2Tokenizer"
    config_file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    # The weights come out readable by their owner alone, which a package must not be.
    (folder / "model.safetensors").chmod(0o644)
    reloaded = AutoTokenizer.from_pretrained(folder)
    text = f"What is 7 + 12?\n\n{OPEN_TAG}19{CLOSE_TAG} It isn't  20; naïve (漢字)\t\n"
    ids = tokenizer.encode(text, add_special_tokens=False)
    if reloaded.encode(text, add_special_tokens=False) != ids or reloaded.decode(ids) != text:
        raise RuntimeError(f"the tokenizer in {folder} reads back differently ({type(reloaded).__name__})")


def make(folder: Path, recipe: Recipe) -> Measured:
    """Build, train, save and measure; the caller's thread count and random state are changed."""
    # One thread: sums in another order would give other bytes.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer(recipe)
    model = build_model(recipe, tokenizer)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"{parameters} parameters, {len(tokenizer)} tokens")
    train(model, tokenizer, recipe)
    save(model, tokenizer, folder)
    return measure(model, tokenizer)


def main() -> None:
    """Read the command line, make the model, print what was measured as one line of JSON."""
    parser = argparse.ArgumentParser(description="Make the embedded model from nothing.")
    parser.add_argument("out_dir", type=Path, help="folder to write; made where it is missing")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    arguments = parser.parse_args()
    measured = make(arguments.out_dir, Recipe(seed=arguments.seed, steps=arguments.steps))
    sys.stdout.write(json.dumps(vars(measured)) + "\n")


if __name__ == "__main__":
    main()
