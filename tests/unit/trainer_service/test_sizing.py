"""What training takes in memory, reckoned from a model's files, and what is proposed where it is too much."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.sft_hyperparameters import SftHyperparameters
from trainer_service.sizing import (
    BrokenModelError,
    Machine,
    UnknownModelError,
    compute_settings,
    estimate_memory,
    host_memory_bytes,
    judge_memory,
    machine,
    read_shape,
    rows_that_fit,
    shape_of,
)
from trainer_service.sizing.prompt_lengths import longest_row_tokens

HOST = Machine("cpu", 64 * 10**9, is_accelerator=False)

# Llama 2 7B, whose counts are published.
SEVEN_B: dict[str, Any] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
LAYER = {
    "self_attn.q_proj": (4096, 4096),
    "self_attn.k_proj": (4096, 4096),
    "self_attn.v_proj": (4096, 4096),
    "self_attn.o_proj": (4096, 4096),
    "mlp.gate_proj": (11008, 4096),
    "mlp.up_proj": (11008, 4096),
    "mlp.down_proj": (4096, 11008),
}


def seven_b_tensors() -> dict[str, Sequence[int]]:
    tensors: dict[str, Sequence[int]] = {
        "model.embed_tokens.weight": (32000, 4096),
        "lm_head.weight": (32000, 4096),
        "model.norm.weight": (4096,),
    }
    for layer in range(32):
        for name, shape in LAYER.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = shape
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = (4096,)
        tensors[f"model.layers.{layer}.post_attention_layernorm.weight"] = (4096,)
    return tensors


def written_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Sequence[int]]) -> Path:
    """A model's folder with the headers of its weights, and none of the weights."""
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in tensors.items()
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return folder


@pytest.fixture
def seven_b(tmp_path: Path) -> str:
    return str(written_model(tmp_path / "llama", SEVEN_B, seven_b_tensors()))


def test_the_counts_of_a_model_are_read_from_its_files(seven_b: str) -> None:
    shape = read_shape(seven_b)
    assert shape.parameters == 6_738_415_616
    assert shape.packed_parameters == 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    # Rank 1 on all seven projections, as peft counts it.
    assert shape.adapter_width == 32 * (4 * 2 * 4096 + 3 * (4096 + 11008))
    assert (shape.layers, shape.key_value_width, shape.vocabulary) == (32, 4096, 32000)
    tiny = read_shape("builtin:tiny")
    assert (tiny.hidden_size, tiny.layers, tiny.key_value_width) == (128, 4, 64)


def test_full_fine_tuning_with_a_reference_takes_twenty_bytes_a_parameter(seven_b: str) -> None:
    shape = read_shape(seven_b)
    estimate = estimate_memory(shape, GrpoHyperparameters(), HOST, longest_prompt=100)
    assert estimate.held_bytes == 20 * shape.parameters
    assert [estimate.weights_bytes, estimate.gradients_bytes, estimate.optimizer_bytes] == [
        n * shape.parameters for n in (4, 4, 8)
    ]
    without = estimate_memory(shape, GrpoHyperparameters(kl_coef=0.0), HOST, longest_prompt=100)
    assert (without.reference_bytes, without.held_bytes) == (0, 16 * shape.parameters)
    sft = estimate_memory(shape, SftHyperparameters(), HOST, longest_prompt=100)
    assert (sft.held_bytes, sft.rollout_bytes) == (16 * shape.parameters, 0)


def test_adapters_and_four_bits(seven_b: str) -> None:
    shape = read_shape(seven_b)
    adapters = 16 * shape.adapter_width
    lora = estimate_memory(shape, GrpoHyperparameters(lora_rank=16), HOST, longest_prompt=100)
    assert lora.reference_bytes == 0
    assert lora.held_bytes == 4 * shape.parameters + 16 * adapters
    packed = estimate_memory(
        shape, GrpoHyperparameters(lora_rank=16, load_in_4bit=True), HOST, longest_prompt=100
    )
    rest = shape.parameters - shape.packed_parameters
    assert packed.weights_bytes == pytest.approx(
        # Half a byte, a scale of one byte for 64 weights, and one of four for 256 scales.
        shape.packed_parameters * (0.5 + 1 / 64 + 4 / 64 / 256) + 4 * rest + 4 * adapters,
        rel=1e-3,
    )


def test_a_pass_and_a_rollout_grow_with_their_rows(seven_b: str) -> None:
    shape = read_shape(seven_b)
    h = GrpoHyperparameters(micro_batch_size=2, max_response_length=400, global_batch_size=16)
    estimate = estimate_memory(shape, h, HOST, longest_prompt=100)
    assert (estimate.micro_batch_size, estimate.longest_row) == (2, 500)
    assert estimate.activations_bytes == 2 * 500 * 32 * (14 * 4096 + 4 * 11008) * 4
    # Keys and values in float32, and three copies of the logits that are drawn by.
    assert estimate.rollout_bytes == 16 * (500 * 2 * 32 * 4096 * 4 + 3 * 32000 * 4)
    gpu = estimate_memory(shape, h, Machine("gpu", 10**12, is_accelerator=True), longest_prompt=100)
    # bfloat16, and activations of one layer at a time.
    assert gpu.activations_bytes == 2 * 500 * (32 * 4096 + 14 * 4096 + 4 * 11008) * 2
    longer = estimate_memory(shape, h, HOST, longest_prompt=None)
    assert longer.longest_row == 1024 + 400
    # Two devices share the rollout, and hold the same.
    two = estimate_memory(shape, h, HOST, longest_prompt=100, world_size=2)
    assert (two.rollout_bytes * 2, two.held_bytes) == (estimate.rollout_bytes, estimate.held_bytes)


def test_the_trainer_chooses_the_largest_divisor_that_fits(seven_b: str) -> None:
    shape = read_shape(seven_b)
    h = GrpoHyperparameters(global_batch_size=48, rollouts_per_prompt=8)
    settings = compute_settings(h, on_accelerator=False)
    row = 500 * 32 * (14 * 4096 + 4 * 11008) * 4

    def chosen(rows: float, world_size: int = 1) -> int:
        # Half of what is free may be activations.
        free = int(2 * rows * row) + 1
        return rows_that_fit(
            shape, h, free_bytes=free, longest_row=500, settings=settings, world_size=world_size
        )

    assert [chosen(rows) for rows in (0.1, 1, 5, 7.9, 47, 1000)] == [1, 1, 4, 6, 24, 48]
    assert chosen(1000, world_size=3) == 16


@pytest.mark.parametrize(
    ("memory", "asked"),
    [
        (24e9, {}),
        (60e9, {"max_response_length": 512}),
        (120e9, {}),
        (60e9, {"lora_rank": 8, "micro_batch_size": 32}),
        (20e9, {"lora_rank": 8, "load_in_4bit": True, "micro_batch_size": 64}),
    ],
)
def test_what_is_proposed_fits(seven_b: str, memory: float, asked: dict[str, Any]) -> None:
    shape = read_shape(seven_b)
    gpu = Machine("gpu", int(memory), is_accelerator=True)
    h = GrpoHyperparameters(**asked)
    verdict = judge_memory(shape, h, gpu, longest_prompt=200, quantization=True)
    (refusal,) = verdict.obstacles
    told, _, way_out = refusal.message.rpartition("; ")
    assert told.startswith("memory does not suffice: up to ") and "weights" in told
    proposals = way_out.removesuffix(" would fit").split(" or ")
    assert refusal.field == f"hyperparameters.{proposals[0].removeprefix('all of ').split()[0]}"
    for proposal in proposals:
        parts = proposal.removeprefix("all of ").replace(" with ", ", ").split(", ")
        values = {
            name: json.loads(value) if value != "on" else value for name, value in map(str.split, parts)
        }
        tried = GrpoHyperparameters(**{**asked, **values})
        assert judge_memory(shape, tried, gpu, longest_prompt=200, quantization=True).obstacles == ()


def test_where_nothing_helps_the_model_is_too_large(seven_b: str) -> None:
    verdict = judge_memory(
        read_shape(seven_b),
        GrpoHyperparameters(),
        Machine("gpu", 3 * 10**9, is_accelerator=True),
        longest_prompt=200,
        quantization=True,
    )
    assert [o.field for o in verdict.obstacles] == ["base_model"]
    assert "a smaller base model" in verdict.obstacles[0].message


def test_a_rollout_that_may_not_fit_is_warned_of(seven_b: str) -> None:
    h = GrpoHyperparameters(lora_rank=16, load_in_4bit=True)
    gpu = Machine("gpu", 60 * 10**9, is_accelerator=True)
    verdict = judge_memory(read_shape(seven_b), h, gpu, longest_prompt=200, quantization=True)
    assert verdict.obstacles == ()
    assert "max_response_length 1024 or global_batch_size 32 would fit" in verdict.warning
    half = h.model_copy(update={"max_response_length": 1024})
    assert judge_memory(read_shape(seven_b), half, gpu, longest_prompt=200, quantization=True).warning == ""


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ("nowhere/to-be-found", "not on the trainer's machine yet"),
        ("strange", "hidden_size"),
    ],
)
def test_what_is_not_here_or_of_another_kind_is_unknown(tmp_path: Path, spoilt: str, said: str) -> None:
    written_model(tmp_path / "strange", {"model_type": "mamba"}, {})
    folder = tmp_path / spoilt if spoilt.isalpha() else spoilt
    with pytest.raises(UnknownModelError, match=said) as unknown:
        read_shape(str(folder))
    assert not isinstance(unknown.value, BrokenModelError)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ("\0", "not a folder"),
        ("/no/such/folder", "not a folder"),
        ("../../no/such", "not a folder"),
        (__file__, "is a file"),
        ("empty", "has no config.json"),
        ("adapter", "holds an adapter"),
        ("weightless", "no \\*.safetensors"),
        ("odd", "no JSON object"),
        ("cut", "safetensors"),
        ("torn", "or cut off"),
        ("short", "cut off: it has [0-9]+ of [0-9]+ bytes"),
        ("partial", "model-2.safetensors"),
    ],
)
def test_what_can_be_no_model_is_refused(tmp_path: Path, spoilt: str, said: str) -> None:
    for name in ("empty", "adapter", "weightless"):
        (tmp_path / name).mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    (tmp_path / "weightless" / "config.json").write_text("{}")
    for name in ("odd", "torn", "short", "partial"):
        written_model(tmp_path / name, SEVEN_B, {})
    (tmp_path / "odd" / "config.json").write_text("[]")
    (tmp_path / "torn" / "model.safetensors").write_bytes((20).to_bytes(8, "little") + b'{"a": {"sha')
    header = json.dumps({"a": {"shape": [4], "dtype": "F32", "data_offsets": [0, 16]}}).encode()
    (tmp_path / "short" / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(15)
    )
    (tmp_path / "partial" / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-2.safetensors"}})
    )
    written_model(tmp_path / "cut", SEVEN_B, {})
    (tmp_path / "cut" / "model.safetensors").write_bytes((1 << 50).to_bytes(8, "little"))
    folder = tmp_path / spoilt if spoilt.isalpha() else spoilt
    with pytest.raises(BrokenModelError, match=said):
        read_shape(str(folder))


def test_names_of_other_architectures() -> None:
    gpt2 = shape_of(
        {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_inner": None},
        {"wte.weight": (50257, 768), "h.0.attn.c_attn.weight": (768, 2304), "ln_f.weight": (768,)}.items(),
    )
    assert (gpt2.hidden_size, gpt2.intermediate_size, gpt2.key_value_width) == (768, 3072, 768)
    assert (gpt2.packed_parameters, gpt2.adapter_width) == (768 * 2304, 768 + 2304)
    nested = shape_of({"text_config": SEVEN_B}, seven_b_tensors().items())
    assert nested.layers == 32


def test_the_longest_row_of_a_dataset_is_about_its_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table({"prompt": ['"ab"', '"' + "x" * 300 + '"'], "columns": ["{}", '{"a": 1}']})
    pq.write_table(table, path)
    assert longest_row_tokens(path, ("prompt",)) == 302 // 3 + 32
    assert longest_row_tokens(path, ("prompt", "columns")) == 310 // 3 + 32
    assert longest_row_tokens(tmp_path / "none.parquet", ("prompt",)) is None


def test_a_containers_limit_is_the_memory_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup").write_text("0::/app\n")
    group = tmp_path / "fs" / "app"
    group.mkdir(parents=True)
    for name, text in {
        "memory.max": "max",
        "memory.current": "300",
        "memory.stat": "anon 1\ninactive_file 100\n",
    }.items():
        (group / name).write_text(text)
    monkeypatch.setattr(machine, "_MEMBERSHIP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path / "fs")
    assert host_memory_bytes() > 1000
    (group / "memory.max").write_text("1000")
    assert host_memory_bytes() == 1000
    assert machine.free_host_memory_bytes() == 1000 - (300 - 100)
