"""Trimmed, regrouped passes give what one row at a time, without any padding, gives."""

import pytest
import torch
from accelerate import Accelerator
from training_bench import PAD, load_model
from transformers import GPT2Config, GPT2LMHeadModel
from trl.trainer.utils import add_fused_lm_head, pad

from trainer_service.training.forward import token_log_probs

TEMPERATURE = 0.7


def gpt2():
    """Learned positions: they have to be those of the rollout, which counts from the first real token."""
    torch.manual_seed(2)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=48, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
    ).eval()


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)

    def tokens(count):
        return torch.randint(2, 48, (count,), generator=generator)

    return [(tokens(p), tokens(c)) for p, c in [(3, 5), (9, 1), (1, 7), (6, 2), (4, 4), (2, 6), (8, 3)]]


def alone(model, prompt, completion):
    """Log-probabilities and entropies of one completion from the model's plain logits."""
    ids = torch.cat([prompt, completion])[None]
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
    logps = torch.log_softmax(logits, dim=-1)
    return logps.gather(1, completion[:, None])[:, 0], -(logps.exp() * logps).sum(dim=-1)


@pytest.mark.parametrize("rows_per_pass", [1, 3, 7])
@pytest.mark.parametrize("architecture", ["qwen2", "gpt2"])
def test_agrees_with_each_row_alone(model_dir, rows, architecture, rows_per_pass):
    model = load_model(model_dir).eval() if architecture == "qwen2" else gpt2()
    expected = [alone(model, *row) for row in rows]
    add_fused_lm_head(model, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
    prompts, completions = [p for p, _ in rows], [c for _, c in rows]
    ids = torch.cat(
        [pad(prompts, padding_value=PAD, padding_side="left"), pad(completions, padding_value=PAD)], dim=1
    )
    masks = [[torch.ones_like(t) for t in part] for part in (prompts, completions)]
    mask = torch.cat([pad(masks[0], padding_side="left"), pad(masks[1])], dim=1)
    # The last row is one that could not be scored.
    mask[-1, 9:] = 0

    logps, entropies = token_log_probs(
        model,
        Accelerator(cpu=True),
        ids,
        mask,
        7,
        rows_per_pass=rows_per_pass,
        with_positions=True,
        with_entropy=True,
    )
    assert logps.shape == entropies.shape == (7, 7)
    for row, (expected_logps, expected_entropies) in enumerate(expected[:-1]):
        length = len(expected_logps)
        torch.testing.assert_close(logps[row, :length], expected_logps, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(entropies[row, :length], expected_entropies, rtol=1e-4, atol=1e-5)
        assert not logps[row, length:].any() and not entropies[row, length:].any()
    assert not logps[-1].any()
    logps.sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def test_rows_without_any_label_stay_connected_to_the_model(model_dir):
    model = load_model(model_dir)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 8]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]])
    logps, entropies = token_log_probs(
        model,
        Accelerator(cpu=True),
        ids,
        mask,
        2,
        rows_per_pass=2,
        with_positions=True,
        with_entropy=True,
    )
    assert logps.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    (logps.sum() + entropies.sum()).backward()
