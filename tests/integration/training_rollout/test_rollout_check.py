"""The start-up check: which models our own loop may run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, Qwen2ForCausalLM

from plaudit.types.hyperparameters import GrpoHyperparameters
from trainer_service.training.models import load_policy
from trainer_service.training.rollout import (
    RolloutSettings,
    check_against_generate,
    roll_out,
    roll_out_with_generate,
)
from trainer_service.training.sampling import KeyedUniforms

Make = Callable[[str], PreTrainedModel]

PROMPTS = [[3, 1, 4, 15, 9, 2, 6, 5, 35], [8, 9, 7], [23, 8, 46, 26, 43, 38, 32], [5] * 20, [1, 2]]


class _Tokenizer:
    pad_token_id = 0


TOKENIZER: Any = _Tokenizer()


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_known_architectures_agree(make_model: Make, name: str, dtype: torch.dtype) -> None:
    model = make_model(name).to(dtype)
    check = check_against_generate(model, TOKENIZER, PROMPTS)
    assert check.agrees, check.detail
    assert check.rollout is roll_out
    assert model.training


def test_the_embedded_model_agrees() -> None:
    model, tokenizer = load_policy("builtin:tiny", GrpoHyperparameters(), torch.device("cpu"))
    prompts = [tokenizer.encode(f"What is {i} + {i}?") for i in (1, 10)]
    assert check_against_generate(model, tokenizer, prompts).agrees


def test_prompts_of_one_length_are_made_ragged(make_model: Make) -> None:
    model = make_model("qwen2")
    shapes: set[tuple[int, ...]] = set()
    masked: list[bool] = []

    def note(_: Any, __: Any, named: dict[str, torch.Tensor]) -> None:
        shapes.add(tuple(named["input_ids"].shape))
        masked.append(bool((named["attention_mask"] == 0).any()))

    model.register_forward_pre_hook(note, with_kwargs=True)
    assert check_against_generate(model, TOKENIZER, [[3, 1, 4, 15], [9, 2, 6, 5]]).agrees
    assert all(masked)
    # Rows left the batch on the way, else dropping them would go unchecked.
    assert len({rows for rows, width in shapes if width == 1}) > 1


def test_a_model_that_cannot_take_positions_goes_by_generate(make_model: Make) -> None:
    check = check_against_generate(make_model("bloom"), TOKENIZER, PROMPTS)
    assert not check.agrees
    assert check.detail == "BloomForCausalLM takes no position_ids: stock generate is used"
    assert check.rollout is roll_out_with_generate


class _CountsInThrees(Qwen2ForCausalLM):
    """A model that needs what its own `prepare_inputs_for_generation` does."""

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> dict[str, Any]:
        inputs: dict[str, Any] = super().prepare_inputs_for_generation(input_ids, **kwargs)
        inputs["position_ids"] = inputs["position_ids"] * 3
        return inputs


class _FailsWithOurCache(Qwen2ForCausalLM):
    def forward(self, *args: Any, **named: Any) -> Any:
        if type(named.get("cache")).__name__ == "RolloutCache":
            raise RuntimeError("no such cache")
        return super().forward(*args, **named)

    forward.__wrapped__ = Qwen2ForCausalLM.forward  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "detail"), [(_CountsInThrees, "in our loop and"), (_FailsWithOurCache, "no such cache")]
)
def test_a_model_that_differs_goes_by_generate(make_model: Make, kind: type, detail: str) -> None:
    plain = make_model("qwen2")
    model = kind(plain.config).double()
    model.load_state_dict(plain.state_dict())
    check = check_against_generate(model, TOKENIZER, PROMPTS)
    assert not check.agrees and detail in check.detail
    assert check.rollout is roll_out_with_generate
    settings = RolloutSettings(8, 0.0, 1.0, 0, frozenset(), 0)
    written = check.rollout(
        model,
        PROMPTS[:2],
        global_indices_B=[0, 1],
        uniforms=KeyedUniforms(1, 1),
        settings=settings,
        on_finish=lambda row: None,
        should_stop=lambda: False,
    ).token_ids_B
    width = max(map(len, PROMPTS[:2]))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in PROMPTS[:2]])
    model.eval()
    stock = model.generate(input_ids=ids, attention_mask=(ids != 0).long(), max_new_tokens=8, do_sample=False)
    assert written == stock[:, width:].tolist()


class _NudgesOddTokens(Qwen2ForCausalLM):
    """Lifts odd tokens where our cache is used, as another order of summing would."""

    nudge = 0.0

    def forward(self, *args: Any, **named: Any) -> Any:
        output = super().forward(*args, **named)
        if type(named.get("cache")).__name__ == "RolloutCache":
            output.logits[..., 1::2] += self.nudge
        return output

    forward.__wrapped__ = Qwen2ForCausalLM.forward  # type: ignore[attr-defined]


@pytest.mark.parametrize(("gap", "agrees"), [(1e-6, True), (0.05, False)])
def test_a_difference_within_rounding_is_none(make_model: Make, gap: float, agrees: bool) -> None:
    plain = make_model("qwen2")
    model = _NudgesOddTokens(plain.config).double()
    model.load_state_dict(plain.state_dict())
    model.nudge = 10.0
    with torch.no_grad():
        # `generate` takes the even token of two by a hair, or by more; our loop is made to take the odd one.
        head = model.get_output_embeddings().weight
        head[1::2] = head[0:-1:2] * (1 - gap)
    assert check_against_generate(model, TOKENIZER, PROMPTS).agrees is agrees
