"""Rollouts against the plainest decoding there is: one row, no padding, no cache, no batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.scoring import FinishReason
from trainer_service.training.dataset import DatasetRow
from trainer_service.training.decoding import decode_completion
from trainer_service.training.models import end_token_ids, load_policy
from trainer_service.training.prompts import prepare_prompts
from trainer_service.training.rollout import (
    FinishedRow,
    Rollout,
    RolloutResult,
    RolloutSettings,
    RolloutStopped,
    roll_out,
    roll_out_with_generate,
)
from trainer_service.training.sampling import KeyedUniforms, sample_tokens

Make = Callable[[str], PreTrainedModel]

ENDS = frozenset({7, 11, 30})
SAMPLED = RolloutSettings(24, 1.0, 1.0, 0, ENDS, 0)
GREEDY = RolloutSettings(24, 0.0, 1.0, 0, ENDS, 0)
# Ragged, repeated, not side by side.
_A, _B, _C = [3, 1, 4, 15, 9, 2, 6, 5, 35], [8, 9, 7], [23, 8, 46, 26, 43, 38, 32]
PROMPTS = [_A, _B, _A, _C, _B, _A, _C, _C, _A, _B]
INDICES = [40, 41, 42, 10, 11, 12, 90, 91, 92, 93]


def run(
    model: nn.Module,
    *,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    indices: Sequence[int] = INDICES,
    settings: RolloutSettings = SAMPLED,
    seed: int = 1,
    engine: Rollout = roll_out,
    on_finish: Callable[[FinishedRow], None] = lambda row: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RolloutResult:
    return engine(
        model,
        prompts,
        global_indices_B=indices,
        uniforms=KeyedUniforms(seed, 4),
        settings=settings,
        on_finish=on_finish,
        should_stop=should_stop,
    )


@torch.no_grad()
def plainly(
    model: nn.Module, prompt: Sequence[int], index: int, settings: RolloutSettings, seed: int = 1
) -> list[int]:
    """One completion, the whole text read again for every token."""
    model.eval()
    uniforms = KeyedUniforms(seed, 4)
    written: list[int] = []
    while len(written) < settings.max_response_length and not (set(written) & settings.end_token_ids):
        logits = model(input_ids=torch.tensor([[*prompt, *written]])).logits[:, -1]
        if settings.temperature == 0.0:
            token = logits.argmax(-1)
        else:
            token = sample_tokens(
                logits,
                uniforms.draw([index], len(written)),
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
            )
        written.append(int(token))
    return written


def all_plainly(model: nn.Module, settings: RolloutSettings) -> list[list[int]]:
    return [plainly(model, p, i, settings) for p, i in zip(PROMPTS, INDICES, strict=True)]


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama", "gpt2", "gemma3", "lfm2"])
@pytest.mark.parametrize(
    "settings",
    [GREEDY, SAMPLED, RolloutSettings(24, 0.7, 0.8, 9, ENDS, 0)],
    ids=["greedy", "plain", "warped"],
)
def test_our_loop_writes_what_plain_decoding_writes(
    make_model: Make, name: str, settings: RolloutSettings
) -> None:
    model = make_model(name)
    result = run(model, settings=settings)
    assert result.token_ids_B == all_plainly(make_model(name), settings)
    assert result.non_finite_rows == ()
    if settings is SAMPLED:
        # Else the test would not see rows leave one after the other.
        assert len({len(ids) for ids in result.token_ids_B}) > 3


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "gemma3", "bloom"])
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_way_by_generate_writes_the_same(make_model: Make, name: str, settings: RolloutSettings) -> None:
    if name == "bloom":
        # Its alibi sees padding as distance: only rows without padding can be compared.
        prompts, indices = [_A] * 4, INDICES[:4]
    else:
        prompts, indices = PROMPTS, INDICES
    result = run(
        make_model(name), prompts=prompts, indices=indices, settings=settings, engine=roll_out_with_generate
    )
    model = make_model(name)
    expected = [plainly(model, p, i, settings) for p, i in zip(prompts, indices, strict=True)]
    assert result.token_ids_B == expected


def test_long_completions_outgrow_the_first_buffers(make_model: Make) -> None:
    settings = RolloutSettings(200, 1.0, 1.0, 0, frozenset({7}), 0)
    result = run(make_model("qwen2"), prompts=[_A, _B, _A], indices=[1, 2, 3], settings=settings)
    model = make_model("qwen2")
    assert max(map(len, result.token_ids_B)) > 140
    assert result.token_ids_B == [plainly(model, p, i, settings) for p, i in ((_A, 1), (_B, 2), (_A, 3))]


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_a_row_does_not_depend_on_the_batch(make_model: Make, engine: Rollout) -> None:
    model = make_model("qwen2")
    together = run(model, engine=engine).token_ids_B

    def some(places: Sequence[int]) -> list[list[int]]:
        return run(
            model,
            prompts=[PROMPTS[p] for p in places],
            indices=[INDICES[p] for p in places],
            engine=engine,
        ).token_ids_B

    order = [7, 2, 9, 0, 4, 1, 8, 3, 6, 5]
    assert some(order) == [together[p] for p in order]
    assert some(range(4)) + some(range(4, 10)) == together
    assert some([5]) == [together[5]]
    assert run(model, seed=2, engine=engine).token_ids_B != together


def test_in_float32_rows_agree_but_for_rounding(make_model: Make) -> None:
    model = make_model("qwen2").float()
    together = run(model).token_ids_B
    alone = [
        run(model, prompts=[p], indices=[i]).token_ids_B[0] for p, i in zip(PROMPTS, INDICES, strict=True)
    ]
    assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 9


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_a_row_is_handed_on_with_its_last_token(make_model: Make, engine: Rollout) -> None:
    model = make_model("qwen2")
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    model.register_forward_pre_hook(count)
    finished: list[tuple[int, FinishedRow]] = []
    result = run(model, engine=engine, on_finish=lambda row: finished.append((passes, row)))
    assert sorted(row.index for _, row in finished) == list(range(len(PROMPTS)))
    for passes_then, row in finished:
        # The pass that gave the last token is the newest one: nothing was computed in between.
        assert passes_then == len(row.token_ids)
        assert list(row.token_ids) == result.token_ids_B[row.index]
        ended = row.token_ids[-1] in ENDS
        assert row.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
        assert row.finish_reason is result.finish_reasons_B[row.index]
        assert ended or len(row.token_ids) == 24
        assert not set(row.token_ids[:-1]) & ENDS
    lengths = [len(row.token_ids) for _, row in finished]
    assert lengths == sorted(lengths) and lengths[0] < 12 < lengths[-1]


def test_an_end_at_the_last_place_is_an_end(make_model: Make) -> None:
    model = make_model("qwen2")
    row = next(r for r, ids in enumerate(all_plainly(model, SAMPLED)) if len(ids) > 1 and ids[-1] in ENDS)
    length = len(plainly(model, PROMPTS[row], INDICES[row], SAMPLED))
    for limit, reason in ((length, FinishReason.STOP), (length - 1, FinishReason.LENGTH)):
        settings = RolloutSettings(limit, 1.0, 1.0, 0, ENDS, 0)
        result = run(model, prompts=[PROMPTS[row]], indices=[INDICES[row]], settings=settings)
        assert (len(result.token_ids_B[0]), result.finish_reasons_B[0]) == (limit, reason)


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_a_single_token_is_the_least(make_model: Make, engine: Rollout) -> None:
    result = run(make_model("qwen2"), settings=RolloutSettings(1, 1.0, 1.0, 0, ENDS, 0), engine=engine)
    assert {len(ids) for ids in result.token_ids_B} == {1}
    assert run(make_model("qwen2"), prompts=[], indices=[], engine=engine).token_ids_B == []


def test_each_distinct_prompt_is_read_once_and_finished_rows_leave(make_model: Make) -> None:
    model = make_model("qwen2")
    shapes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(
        lambda _, __, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    lengths = [len(ids) for ids in run(model).token_ids_B]
    assert shapes[0] == (3, len(_A))
    still_writing = [sum(length > position for length in lengths) for position in range(1, max(lengths))]
    assert shapes[1:] == [(rows, 1) for rows in still_writing]


def test_the_head_runs_over_last_positions_only(make_model: Make) -> None:
    model = make_model("qwen2")
    widths: set[int] = set()
    model.get_output_embeddings().register_forward_pre_hook(lambda _, args: widths.add(args[0].shape[1]))
    run(model)
    assert widths == {1}


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_stopping_takes_at_most_a_token(make_model: Make, engine: Rollout) -> None:
    model = make_model("qwen2")
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    finished: list[FinishedRow] = []
    with pytest.raises(RolloutStopped):
        run(model, engine=engine, on_finish=finished.append, should_stop=should_stop)
    assert asked == 6
    assert all(len(row.token_ids) <= 5 for row in finished)
    assert model.training


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_the_mode_that_was_found_is_restored(make_model: Make, engine: Rollout) -> None:
    model = make_model("qwen2")
    model.model.layers[0].eval()
    config = model.generation_config
    before = {name: module.training for name, module in model.named_modules()}
    result = run(model, engine=engine)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert model.generation_config is config
    assert torch.is_grad_enabled()
    # What the rollout left behind can take part in training.
    loss = model(input_ids=torch.tensor([[*_A, *result.token_ids_B[0]]])).logits.logsumexp(-1).sum()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_dropout_and_checkpointing_of_a_training_model_change_nothing(
    make_model: Make, engine: Rollout
) -> None:
    expected = run(make_model("qwen2")).token_ids_B
    model = make_model("qwen2")
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    model.activation_checkpointing_enable()
    model.enable_input_require_grads()
    model.train()
    assert run(model, engine=engine).token_ids_B == expected
    assert model.is_activation_checkpointing and model.training


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_adapters_are_part_of_the_policy(make_model: Make, engine: Rollout) -> None:
    plain = run(make_model("qwen2")).token_ids_B
    torch.manual_seed(9)
    adapted = get_peft_model(
        make_model("qwen2"),
        LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM"),
    ).double()
    # Fresh adapters do nothing; large ones do, as after steps with a huge learning rate.
    assert run(adapted, engine=engine).token_ids_B == plain
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    sampled = run(adapted, engine=engine).token_ids_B
    assert sampled != plain
    assert sampled == all_plainly(adapted, SAMPLED)


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_generation_defaults_of_the_model_are_not_the_policy(make_model: Make, engine: Rollout) -> None:
    expected = run(make_model("qwen2"), settings=GREEDY).token_ids_B
    model = make_model("qwen2")
    model.generation_config.repetition_penalty = 3.0
    model.generation_config.eos_token_id = [5, 6, 8]
    model.generation_config.min_new_tokens = 10
    assert run(model, settings=GREEDY, engine=engine).token_ids_B == expected


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_rows_whose_logits_are_not_finite_are_broken_off_and_named(make_model: Make, engine: Rollout) -> None:
    # Not tied to the head, which stays finite for the others.
    model = make_model("llama")
    healthy = run(model, engine=engine).token_ids_B
    # From the pass on that reads this token, the logits are not finite.
    poison = healthy[0][4]
    with torch.no_grad():
        model.get_input_embeddings().weight[poison] = math.nan
    assert poison not in _A + _B + _C and poison not in ENDS
    finished: list[FinishedRow] = []
    result = run(model, engine=engine, on_finish=finished.append)
    broken = [row for row, ids in enumerate(healthy) if poison in ids[:-1]]
    assert 0 in broken and len(broken) < len(PROMPTS)
    assert result.non_finite_rows == tuple(broken)
    for row, ids in enumerate(healthy):
        expected = ids[: ids.index(poison) + 1] if row in broken else ids
        assert result.token_ids_B[row] == expected
    assert sorted(row.index for row in finished) == [r for r in range(len(PROMPTS)) if r not in broken]
    assert [result.finish_reasons_B[row] for row in broken] == [FinishReason.UNKNOWN] * len(broken)


@pytest.mark.parametrize("engine", [roll_out, roll_out_with_generate])
def test_a_policy_that_is_not_finite_at_all_leaves_no_completion_empty(
    make_model: Make, engine: Rollout
) -> None:
    model = make_model("qwen2")
    with torch.no_grad():
        model.model.norm.weight.fill_(math.nan)
    result = run(model, engine=engine, on_finish=lambda row: pytest.fail("nothing was finished"))
    assert result.non_finite_rows == tuple(range(len(PROMPTS)))
    assert result.token_ids_B == [[0]] * len(PROMPTS)


def test_the_embedded_model_answers_additions() -> None:
    model, tokenizer = load_policy("builtin:tiny", GrpoHyperparameters(), torch.device("cpu"))
    rows = [DatasetRow(i, f"What is {i % 10} + {i // 10}?", {"answer": i % 10 + i // 10}) for i in range(100)]
    prompts = prepare_prompts(rows, tokenizer, max_prompt_length=64).prompts
    result = roll_out(
        model,
        [prompt.token_ids for prompt in prompts],
        global_indices_B=range(100),
        uniforms=KeyedUniforms(42, 1),
        settings=RolloutSettings(
            16, 1.0, 1.0, 0, end_token_ids(model, tokenizer), int(tokenizer.pad_token_id)
        ),
        on_finish=lambda row: None,
        should_stop=lambda: False,
    )
    texts = [
        decode_completion(tokenizer, ids, reason)[0]
        for ids, reason in zip(result.token_ids_B, result.finish_reasons_B, strict=True)
    ]
    assert set(result.finish_reasons_B) == {FinishReason.STOP}
    right = sum(
        text == f"<answer>{row.columns['answer']}</answer>" for text, row in zip(texts, rows, strict=True)
    )
    # Its reward is about 0.3; 100 completions have a standard deviation of 0.046.
    assert 15 <= right <= 48
