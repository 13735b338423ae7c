"""Loads what is trained: the policy in float32, its tokenizer, and what both say about ends and adapters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from peft import LoraConfig
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.pytorch_utils import Conv1D

from plaudit.errors import InvalidArgumentError
from plaudit.types.training_hyperparameters import TrainingHyperparameters
from trainer_service.training._rollout_chat import turn_end_token_id
from trainer_service.training._rollout_loop import base_model as unwrapped
from trainer_service.training.config import compute_dtype
from trainer_service.training.model_sources import ModelError, source_of, unloadable

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_NAMES_SHOWN = 5


def load_policy(
    base_model: str, hyperparameters: TrainingHyperparameters, device: torch.device
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads "builtin:tiny", a folder, or a model of the hub: trained weights in float32, on `device`.

    With load_in_4bit the linear maps of the base are NF4 and stay as they are (QLoRA, arXiv:2305.14314).
    Safetensors only, and no code that comes with a model. The tokenizer pads on the left and has a pad token;
    the embeddings are never resized. Raises ModelError.
    """
    source = source_of(base_model)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, padding_side="left")
    except Exception as error:
        raise unloadable(base_model, error) from error
    _check_config(base_model, config)
    try:
        # Pure bfloat16 weights hardly move at a learning rate of 1e-6; the compute type is autocast's matter.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            quantization_config=_quantization(hyperparameters, device),
            device_map={"": device} if hyperparameters.load_in_4bit else None,
            use_safetensors=True,
            # What does not fit is listed, and refused by name below.
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        model: PreTrainedModel = loaded[0].to(device)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise unloadable(base_model, error) from error
    _check_weights(base_model, loaded[1])
    if hyperparameters.load_in_4bit:
        # A second of work, which only such a model is worth.
        from trainer_service.training.four_bits import keep_trainable

        keep_trainable(model)
    _prepare_tokenizer(base_model, model, tokenizer)
    if hyperparameters.lora_rank is not None:
        # Refused now rather than when the adapters are put on, minutes later.
        adapter_targets(model)
    return model, tokenizer


def _quantization(
    hyperparameters: TrainingHyperparameters, device: torch.device
) -> BitsAndBytesConfig | None:
    if not hyperparameters.load_in_4bit:
        return None
    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]  # transformers annotates it in part
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype(hyperparameters, device),
    )


def end_token_ids(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that ends a completion.

    All of the generation config's and the config's, the tokenizer's, and the one with which the chat template
    closes a turn: a model may end its turns with another token than its eos_token. Raises ModelError where
    there is none.
    """
    base = unwrapped(model)
    ends: set[int] = set()
    for named in (
        base.generation_config.eos_token_id if base.generation_config is not None else None,
        base.config.eos_token_id,
        tokenizer.eos_token_id,
        turn_end_token_id(tokenizer),
    ):
        ends.update(named if isinstance(named, list) else [] if named is None else [named])
    if not ends:
        raise ModelError(
            "the model names no end-of-sequence token, so that no completion would ever end; set "
            "eos_token_id in its generation_config.json"
        )
    return frozenset(ends)


def check_lengths(model: nn.Module, longest_prompt: int, max_response_length: int) -> None:
    """Refuses completions that would outgrow a model with learned positions, which would fail at that token.

    Positions that are computed (rotary, alibi) have no such end. Lengths are in tokens. Raises
    InvalidArgumentError with a `max_response_length` that works, or ModelError where none does.
    """
    positions = _learned_positions(model)
    if positions is None:
        return
    room = positions - longest_prompt
    if room < 1:
        raise ModelError(
            f"the model reads at most {positions} tokens, and the longest prompt has {longest_prompt}; lower "
            "max_prompt_length"
        )
    if max_response_length > room:
        raise InvalidArgumentError.of(
            "hyperparameters.max_response_length",
            f"{max_response_length} does not fit: the model reads at most {positions} tokens, of which the "
            f"longest prompt takes {longest_prompt}; at most {room} would work",
        )


def check_example_length(model: nn.Module, longest: int) -> None:
    """Refuses examples of sft that are longer than a model with learned positions reads, in tokens.

    Raises InvalidArgumentError with a `max_length` that works.
    """
    positions = _learned_positions(model)
    if positions is not None and longest > positions:
        raise InvalidArgumentError.of(
            "hyperparameters.max_length",
            f"an example has {longest} tokens, and the model reads at most {positions}; {positions} would "
            "work",
        )


def _learned_positions(model: nn.Module) -> int | None:
    """How many tokens a model with learned positions reads; None where positions are computed."""
    config = unwrapped(model).config.get_text_config(decoder=True)
    positions = getattr(config, "max_position_embeddings", None)
    if "rope_parameters" in config.to_dict() or not isinstance(positions, int):
        return None
    return positions


def lora_config(model: nn.Module, hyperparameters: TrainingHyperparameters) -> LoraConfig:
    """Adapters of rank `lora_rank`, which must be set, on the attention and MLP projections of `model`.

    Where an architecture names them otherwise, on what peft adapts by default. Raises ModelError where
    neither knows it.
    """
    alpha = hyperparameters.effective_lora_alpha
    assert hyperparameters.lora_rank is not None and alpha is not None
    targets = adapter_targets(model)
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=hyperparameters.lora_rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules=targets,
        # GPT-2's projections hold their weights the other way round.
        fan_in_fan_out=any(isinstance(m, Conv1D) for n, m in _projections(model) if n in targets),
    )


def adapter_targets(model: nn.Module) -> list[str]:
    """Names of the modules that adapters go on. Raises ModelError where none is known."""
    names = {name for name, _ in _projections(model)}
    found = [name for name in _PROJECTIONS if name in names]
    if not found:
        model_type = unwrapped(model).config.model_type
        known = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(model_type, [])
        found = [name for name in known if name in names]
    if not found:
        raise ModelError(
            f"lora_rank: adapters go on {', '.join(_PROJECTIONS)}, and {type(unwrapped(model)).__name__} "
            f"has none of them (it has {', '.join(sorted(names))}); leave lora_rank out to train all weights"
        )
    return found


def _projections(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The linear maps of a model, by the last part of their names."""
    return [
        (name.rpartition(".")[2], module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    ]


def _check_config(base_model: str, config: Any) -> None:
    if "quantization_config" in config.to_dict():
        raise ModelError(
            f"base_model {base_model!r} is stored quantised, and such weights cannot be trained; give the "
            "model in full precision"
        )
    if config.is_encoder_decoder:
        raise ModelError(
            f"base_model {base_model!r} ({config.model_type}) is an encoder-decoder; give a causal "
            "language model"
        )


def _check_weights(base_model: str, info: dict[str, Iterable[Any]]) -> None:
    # transformers fills what is missing with random numbers and only warns.
    mismatched = [
        f"{name} (has {list(has)}, needs {list(needs)})" for name, has, needs in info["mismatched_keys"]
    ]
    wrong = sorted([*info["missing_keys"], *mismatched])
    if wrong:
        more = f" and {len(wrong) - _NAMES_SHOWN} more" if len(wrong) > _NAMES_SHOWN else ""
        raise ModelError(
            f"base_model {base_model!r} lacks weights that its config.json asks for: "
            f"{', '.join(wrong[:_NAMES_SHOWN])}{more}; its files are incomplete, or belong to another model"
        )


def _prepare_tokenizer(base_model: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    embeddings: Any = model.get_input_embeddings()
    embedded: int = embeddings.num_embeddings
    own_pad_token = tokenizer.pad_token
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id >= embedded:
        if tokenizer.eos_token is None:
            raise ModelError(
                f"base_model {base_model!r} has neither a pad token nor an eos_token; set eos_token in its "
                "tokenizer_config.json"
            )
        # A token of its own would need a row in the embeddings. Padding is masked, so any token serves.
        tokenizer.pad_token = tokenizer.eos_token
    beyond = sorted(token for token, index in tokenizer.get_vocab().items() if index >= embedded)
    used = [token for token in beyond if token != own_pad_token]
    if used:
        raise ModelError(
            f"base_model {base_model!r} embeds {embedded} tokens, and its tokenizer has more "
            f"({', '.join(used[:_NAMES_SHOWN])}); the two do not belong together"
        )
