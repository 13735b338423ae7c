"""What is reckoned of a loaded model is what is reckoned of its files, and what it really keeps."""

from contextlib import contextmanager

import pytest
import torch
from peft import get_peft_model
from training_bench import load_model, make_prompts
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from plaudit.errors import InvalidArgumentError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.statuses import ErrorCode
from trainer_service.journal import JournalReader, JournalWriter, MemoryEstimated
from trainer_service.run_directory import RunStart
from trainer_service.sizing import Machine, compute_settings, held_bytes, read_shape
from trainer_service.sizing.estimate import activation_bytes_per_token, cast_weight_bytes
from trainer_service.sizing.model_files import BUILTIN_TINY_FOLDER
from trainer_service.training import memory
from trainer_service.training import session as session_module
from trainer_service.training.failures import describe_failure
from trainer_service.training.memory import model_shape
from trainer_service.training.models import load_policy, lora_config
from trainer_service.training.reporting import RunReporter
from trainer_service.training.tiny import tiny_model_path


def test_the_loaded_model_is_the_one_in_the_files(model_dir):
    assert model_shape(load_model(model_dir)) == read_shape(str(model_dir))


def test_the_embedded_model_lies_where_it_is_read():
    assert tiny_model_path() == BUILTIN_TINY_FOLDER


def test_a_base_of_four_bits_counts_as_what_it_stands_for():
    h = GrpoHyperparameters(lora_rank=4, load_in_4bit=True)
    packed, _ = load_policy("builtin:tiny", h, torch.device("cpu"))
    assert model_shape(packed) == read_shape("builtin:tiny")


def test_adapters_are_as_many_as_peft_makes(model_dir):
    h = GrpoHyperparameters(lora_rank=3)
    model = load_model(model_dir)
    held = held_bytes(model_shape(model), h)
    trainable = get_peft_model(model, lora_config(model, h)).get_nb_trainable_parameters()[0]
    assert held.adapters == held.gradients == 4 * trainable
    assert held.optimizer == 8 * trainable


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("hidden", [64, 256])
def test_a_pass_keeps_about_what_is_reckoned(hidden, dtype):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        attn_implementation="sdpa",
    )
    model = Qwen2ForCausalLM(config).model
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    rows, tokens = 4, 48
    h = GrpoHyperparameters(dtype=dtype)
    with (
        torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        model(input_ids=torch.randint(0, 64, (rows, tokens)))
    shape = model_shape(Qwen2ForCausalLM(config))
    settings = compute_settings(h, on_accelerator=False)
    reckoned = rows * tokens * activation_bytes_per_token(shape, settings) + cast_weight_bytes(
        shape, h, settings
    )
    assert 0.6 < sum(kept.values()) / reckoned < 1.6


@contextmanager
def session_of(tmp_path, **hyperparameters):
    """A run's session up to its plan, and the entries that it writes."""
    target = {
        "binding": {"name": "exact", "server": "builtin", "reward": "exact"},
        "addresses": ["127.0.0.1:1"],
    }
    start = RunStart.model_validate(
        {
            "run_id": "run_1",
            "job_id": "job_1",
            "attempt": 1,
            "artifact_root": tmp_path,
            "spec": {
                "base_model": "builtin:tiny",
                "output_name": "x",
                "method": "grpo",
                "hyperparameters": {"rollouts_per_prompt": 2, "global_batch_size": 4, **hyperparameters},
                "dataset": {"uri": "datasets/a.parquet", "sha256": "ab", "row_count": 4},
                "rewards": [target],
            },
        }
    )
    with JournalWriter(tmp_path) as journal:
        reporter = RunReporter(journal, Silent())
        yield session_module._Session(start, tmp_path, reporter, Silent())


class Silent:
    """Stands for what hears a run, and for its reward servers: neither matters before the first step."""

    pause_requested = cancel_requested = False

    def report(self, **told):
        """Takes a report."""


def entries(tmp_path):
    with JournalReader(tmp_path) as reader:
        return [record.entry for record in reader.read_after(0, 100)]


def test_a_run_tells_what_it_takes_and_is_refused_by_a_device_that_is_too_small(
    tmp_path, monkeypatch, model_dir
):
    model, prompts = load_model(model_dir), make_prompts(4)
    with session_of(tmp_path, max_response_length=100) as session:
        plan = session._plan(model, prompts)
        (told,) = entries(tmp_path)
        assert isinstance(told, MemoryEstimated) and told.estimate.fits
        assert told.estimate.micro_batch_size == plan.micro_batch_size == 4
        longest = max(len(prompt.token_ids) for prompt in prompts)
        assert told.estimate.longest_row == longest + 100
        assert told.estimate.held_bytes == 20 * sum(p.numel() for p in model.parameters())
        one_pass = told.estimate.activations_bytes + told.estimate.logits_bytes
        small = Machine("cpu", told.estimate.held_bytes + one_pass - 1, is_accelerator=False)
        monkeypatch.setattr(memory, "machine_of", lambda device: small)
        with pytest.raises(
            InvalidArgumentError, match=r"max_response_length 50 or .* kl_coef 0 or"
        ) as refused:
            session._plan(model, prompts)
        # The run fails by its configuration, which no other attempt mends.
        assert describe_failure(refused.value, session._h).code is ErrorCode.CONFIG_ERROR


def test_completions_that_outgrow_learned_positions_are_refused(tmp_path):
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=64))
    prompts = make_prompts(4)
    longest = max(len(prompt.token_ids) for prompt in prompts)
    with (
        session_of(tmp_path, max_response_length=32) as session,
        pytest.raises(InvalidArgumentError, match=f"at most {32 - longest} would work"),
    ):
        session._plan(model, prompts)
