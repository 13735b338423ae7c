"""Loading the policy: what is refused and how, pads, ends and adapters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from plaudit.errors import InvalidArgumentError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.statuses import ErrorCode
from trainer_service.training.models import (
    ModelError,
    adapter_targets,
    check_lengths,
    end_token_ids,
    load_policy,
    lora_config,
)

Make = Callable[..., PreTrainedTokenizerFast]
CPU = torch.device("cpu")
FULL = GrpoHyperparameters()
LORA = GrpoHyperparameters(lora_rank=4)


def small_llama(vocab_size: int = 262, **named: Any) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            **named,
        )
    )


@pytest.fixture
def folder(tmp_path: Path, make_tokenizer: Make) -> Path:
    path = tmp_path / "model"
    small_llama(eos_token_id=256).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


def edited(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **fields}))


def refused(base_model: str | Path, hyperparameters: GrpoHyperparameters = FULL) -> str:
    with pytest.raises(ModelError) as caught:
        load_policy(str(base_model), hyperparameters, CPU)
    assert caught.value.code is ErrorCode.MODEL_ERROR
    assert "\n" not in caught.value.message
    return caught.value.message


def test_the_embedded_model_loads_in_float32_and_pads_on_the_left() -> None:
    model, tokenizer = load_policy("builtin:tiny", FULL, CPU)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert tokenizer.padding_side == "left" and tokenizer.pad_token == "<|endoftext|>"
    assert end_token_ids(model, tokenizer) == {tokenizer.convert_tokens_to_ids("<|im_end|>")}


def test_weights_in_half_precision_are_trained_in_float32(tmp_path: Path, make_tokenizer: Make) -> None:
    small_llama().to(torch.bfloat16).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    model, tokenizer = load_policy(str(tmp_path), FULL, CPU)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    # No pad token of its own: the end token serves, and no embedding is added.
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    assert model.get_input_embeddings().num_embeddings == 262


def test_a_name_that_is_neither_folder_nor_hub_id_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path / "nowhere")
    assert "nowhere" in message and "is not a folder on the trainer's machine" in message
    assert "builtin:tiny" in message
    (tmp_path / "file").write_text("x")
    assert "is a file; give the folder" in refused(tmp_path / "file")


def test_a_hub_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = refused("someone/some-model-that-is-nowhere")
    assert "someone/some-model-that-is-nowhere" in message
    assert "check the name and the network, or give the path of a folder" in message


def test_pickled_weights_are_never_loaded(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "has no *.safetensors file" in refused(folder)


def test_an_incomplete_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    assert "has no config.json" in refused(tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {k: v for k, v in weights.items() if "q_proj" not in k},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    # transformers itself would train random numbers there.
    assert "lacks weights that its config.json asks for: model.layers.0.self_attn.q_proj.weight" in refused(
        folder
    )
    (folder / "model.safetensors").write_bytes(b"no weights")
    assert "cannot be loaded" in refused(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert "cannot be loaded" in refused(folder)


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    edited(folder / "config.json", intermediate_size=48)
    message = refused(folder)
    assert "mlp.up_proj.weight (has [32, 16], needs [48, 16])" in message
    assert "incomplete, or belong to another model" in message


def test_code_that_comes_with_a_model_is_never_run(folder: Path) -> None:
    marker = folder / "ran"
    (folder / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w')\n")
    edited(
        folder / "config.json",
        model_type="own-architecture",
        auto_map={"AutoConfig": "modeling_own.Config", "AutoModelForCausalLM": "modeling_own.Model"},
    )
    message = refused(folder)
    assert "brings code of its own, which is never run" in message and "trust" not in message
    assert not marker.exists()


def test_what_is_no_causal_language_model_is_refused(tmp_path: Path, make_tokenizer: Make) -> None:
    tiny = {"vocab_size": 262, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(**tiny)).save_pretrained(tmp_path / "t5")
    make_tokenizer().save_pretrained(tmp_path / "t5")
    assert "(t5) is an encoder-decoder" in refused(tmp_path / "t5")


def test_quantised_weights_and_adapters_are_refused(folder: Path) -> None:
    edited(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert "is stored quantised" in refused(folder)
    (folder / "adapter_config.json").write_text("{}")
    assert "holds an adapter; merge it into its base model" in refused(folder)


def test_a_tokenizer_that_knows_more_tokens_than_the_model_is_refused(
    tmp_path: Path, make_tokenizer: Make
) -> None:
    small_llama(vocab_size=260).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert "embeds 260 tokens, and its tokenizer has more (</think>, <think>)" in refused(tmp_path)


def test_a_pad_token_without_an_embedding_is_replaced(tmp_path: Path, make_tokenizer: Make) -> None:
    # A common fault of published fine-tunes: padding would index past the embeddings.
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    assert tokenizer.pad_token_id == 262
    small_llama().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    _, loaded = load_policy(str(tmp_path), FULL, CPU)
    assert loaded.pad_token_id == loaded.eos_token_id < 262


def test_every_end_counts(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    model = small_llama(eos_token_id=7)
    model.generation_config.eos_token_id = [3, 5]
    end_of_text, turn_end = (tokenizer.convert_tokens_to_ids(t) for t in ("<|endoftext|>", "<|im_end|>"))
    # The tokenizer's own end token is <|endoftext|>, but turns end with <|im_end|>.
    assert end_token_ids(model, tokenizer) == {3, 5, 7, end_of_text, turn_end}
    adapted = get_peft_model(model, lora_config(model, LORA))
    assert end_token_ids(adapted, tokenizer) == {3, 5, 7, end_of_text, turn_end}
    plain = make_tokenizer(None)
    assert end_token_ids(model, plain) == {3, 5, 7, end_of_text}


def test_what_follows_a_turn_counts_only_where_it_is_special(make_tokenizer: Make) -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer = make_tokenizer(template)
    model = small_llama(eos_token_id=7)
    assert end_token_ids(model, tokenizer) == {7, tokenizer.eos_token_id}


def test_a_model_without_an_end_is_refused(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(None)
    tokenizer.eos_token = None
    model = small_llama(eos_token_id=None)
    with pytest.raises(ModelError, match=r"set eos_token_id in its generation_config\.json"):
        end_token_ids(model, tokenizer)


def test_adapters_go_on_the_seven_projections() -> None:
    model, _ = load_policy("builtin:tiny", LORA, CPU)
    config = lora_config(model, GrpoHyperparameters(lora_rank=4, lora_alpha=6))
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 6, 0.0)
    assert lora_config(model, LORA).lora_alpha == 4
    adapted = get_peft_model(model, config)
    names = {name.split(".")[-4] for name, p in adapted.named_parameters() if p.requires_grad}
    assert names == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    # Per layer: rank times (inputs + outputs), with 128 hidden, 64 of keys and values, 256 in the MLP.
    assert trained == 4 * 4 * (2 * (128 + 128) + 2 * (128 + 64) + 3 * (128 + 256))


def test_adapters_on_projections_of_other_names(recwarn: pytest.WarningsRecorder) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2))
    assert adapter_targets(model) == ["c_attn"]
    adapted = get_peft_model(model, lora_config(model, LORA))
    assert any("c_attn.lora_A" in name for name, p in adapted.named_parameters() if p.requires_grad)
    assert not [w for w in recwarn if "fan_in_fan_out" in str(w.message)]


def test_an_architecture_without_known_projections_names_what_it_has() -> None:
    bert = BertForMaskedLM(
        BertConfig(
            hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9
        )
    )
    bert.config.model_type = "something-new"
    with pytest.raises(ModelError, match=r"lora_rank: .*BertForMaskedLM has none of them \(it has .*query"):
        adapter_targets(bert)


def test_learned_positions_bound_the_completions() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=64))
    check_lengths(model, 40, 24)
    with pytest.raises(InvalidArgumentError, match=r"max_response_length: 25 does not fit.*at most 24 would"):
        check_lengths(model, 40, 25)
    with pytest.raises(ModelError, match=r"reads at most 64 tokens.*has 64; lower max_prompt_length"):
        check_lengths(model, 64, 1)


def test_computed_positions_have_no_end() -> None:
    check_lengths(small_llama(max_position_embeddings=64), 60, 500)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3_000, "~nobody-of-this-name/model", "a\0b"])
def test_a_name_that_no_file_system_takes_is_a_wrong_model(name: str) -> None:
    assert "cannot be loaded" in (message := refused(name)) or "is not a folder" in message
