"""Trimmed, regrouped passes give what one row at a time, without any padding, gives; its gradients too."""

import pytest
import torch
from accelerate import Accelerator
from training_bench import PAD, load_model
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM
from trl.trainer.utils import add_fused_lm_head, disable_dropout_in_model

from trainer_service.training import forward
from trainer_service.training.forward import padded_rows, token_log_probs

TEMPERATURE = 0.7
# Which of the prompts below a row has, and how long its completion is.
ROWS = [(0, 5), (1, 1), (2, 7), (0, 2), (3, 4), (2, 6), (0, 3), (1, 4)]
PROMPT_LENGTHS = [3, 9, 1, 6]


def gpt2(_):
    """Learned positions: they have to be those of the rollout, which counts from the first real token."""
    torch.manual_seed(2)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=48, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
    ).eval()


def sliding_window(_):
    """No token sees beyond the three before it, so that most of a prompt is out of a completion's sight."""
    torch.manual_seed(2)
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=48,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=4,
            initializer_range=0.3,
        )
    ).eval()


def rotary(model_dir):
    return load_model(model_dir).eval()


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)

    def tokens(count):
        return torch.randint(2, 48, (count,), generator=generator).tolist()

    prompts = [tokens(length) for length in PROMPT_LENGTHS]
    return [(prompts[number], tokens(length)) for number, length in ROWS]


def alone(model, prompt, completion):
    """Log-probabilities and entropies of one completion from the model's plain logits."""
    ids = torch.tensor([prompt + completion])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
    logps = torch.log_softmax(logits, dim=-1)
    return logps.gather(1, torch.tensor(completion)[:, None])[:, 0], -(logps.exp() * logps).sum(dim=-1)


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


WAYS = {"alone": (False, False), "shared": (True, False), "shared, checkpointing": (True, True)}
# Under checkpointing GPT-2 takes the cache from its layers, as the check at the start finds.
KINDS = [
    (architecture, way)
    for architecture in (rotary, sliding_window, gpt2)
    for way in WAYS
    if (architecture, way) != (gpt2, "shared, checkpointing")
]


@pytest.mark.parametrize(("rows_per_pass", "tokens_per_pass"), [(1, 2048), (3, 2048), (8, 2048), (8, 12)])
@pytest.mark.parametrize(("architecture", "way"), KINDS)
def test_agrees_with_each_row_alone(
    model_dir, rows, monkeypatch, architecture, way, rows_per_pass, tokens_per_pass
):
    share_prompts, checkpointing = WAYS[way]
    monkeypatch.setattr(forward, "CPU_TOKENS_PER_PASS", tokens_per_pass)
    model = architecture(model_dir)
    disable_dropout_in_model(model)
    expected = [alone(model, *row) for row in rows]
    # The last row is one that could not be scored; the weights differ so that no two gradients cancel.
    sum((i + 1) * logps.sum() for i, (logps, _) in enumerate(expected[:-1])).backward()
    expected_gradients = gradients(model)
    add_fused_lm_head(model, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
    if checkpointing:
        model.train()
        model.activation_checkpointing_enable({"use_reentrant": False})
    input_ids, mask, width = padded_rows([p for p, _ in rows], [c for _, c in rows], PAD, torch.device("cpu"))
    mask[-1, -width:] = 0

    logps, entropies = token_log_probs(
        model,
        Accelerator(cpu=True),
        input_ids,
        mask,
        width,
        rows_per_pass=rows_per_pass,
        with_positions=True,
        with_entropy=True,
        share_prompts=share_prompts,
    )
    assert logps.shape == entropies.shape == (8, 7)
    for row, (expected_logps, expected_entropies) in enumerate(expected[:-1]):
        length = len(expected_logps)
        torch.testing.assert_close(logps[row, :length], expected_logps, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(entropies[row, :length], expected_entropies, rtol=1e-4, atol=1e-5)
        assert not logps[row, length:].any() and not entropies[row, length:].any()
    assert not logps[-1].any()
    (logps.sum(dim=1) * torch.arange(1, 9)).sum().backward()
    for name, gradient in gradients(model).items():
        scale = float(expected_gradients[name].abs().max())
        torch.testing.assert_close(
            gradient, expected_gradients[name], rtol=1e-3, atol=1e-5 * scale + 1e-5, msg=name
        )


@pytest.mark.parametrize("share_prompts", [False, True])
def test_reads_no_more_than_it_must(model_dir, rows, share_prompts):
    model = load_model(model_dir)
    add_fused_lm_head(model)
    read = []
    model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].shape))
    input_ids, mask, width = padded_rows([p for p, _ in rows], [c for _, c in rows], PAD, torch.device("cpu"))
    token_log_probs(
        model,
        Accelerator(cpu=True),
        input_ids,
        mask,
        width,
        rows_per_pass=1,
        with_positions=True,
        with_entropy=False,
        share_prompts=share_prompts,
    )
    # The last token of a prompt is read with each completion, and the last of a completion not at all.
    completions = sum(length for _, length in ROWS)
    once = sum(length - 1 for length in PROMPT_LENGTHS)
    each = sum(PROMPT_LENGTHS[number] - 1 for number, _ in ROWS)
    assert sum(shape.numel() for shape in read) == completions + (once if share_prompts else each)


@pytest.mark.parametrize("share_prompts", [False, True])
def test_rows_without_any_label_stay_connected_to_the_model(model_dir, share_prompts):
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
        share_prompts=share_prompts,
    )
    assert logps.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    (logps.sum() + entropies.sum()).backward()
