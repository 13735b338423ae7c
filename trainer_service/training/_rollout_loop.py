"""Our own decode loop: each distinct prompt is read once, finished rows leave, nothing is computed twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer_service.training._rollout_cache import RolloutCache, compacted_order
from trainer_service.training._rollout_rows import (
    FinishedRow,
    RolloutResult,
    RolloutRows,
    RolloutSettings,
    RolloutStopped,
)
from trainer_service.training.sampling import KeyedUniforms

_FORWARD_ARGUMENTS = ("input_ids", "attention_mask", "position_ids", "cache", "use_cache", "logits_to_keep")


def roll_out(
    model: nn.Module,
    prompt_token_ids_B: Sequence[Sequence[int]],
    *,
    global_indices_B: Sequence[int],
    uniforms: KeyedUniforms,
    settings: RolloutSettings,
    on_finish: Callable[[FinishedRow], None],
    should_stop: Callable[[], bool],
) -> RolloutResult:
    """Samples a completion for every prompt; equal prompts share one prefill.

    `model` is a causal language model of transformers, or peft's wrapper of one, unwrapped from DDP and the
    like; it is left in the mode (training or not, module by module) in which it was found, and no gradient is
    recorded. It runs under whatever autocast the caller has entered. `global_indices_B` are the completions'
    indices in the global batch, which key their randomness. `on_finish` is called in this thread, for each
    row at the token with which it ends; `should_stop` is asked before every token.

    Raises RolloutStopped where `should_stop` said so.
    """
    if not prompt_token_ids_B:
        return RolloutResult([], [], ())
    rows = RolloutRows(
        global_indices_B=global_indices_B, uniforms=uniforms, settings=settings, on_finish=on_finish
    )
    with generation_mode(model):
        _decode(model, prompt_token_ids_B, rows, settings, should_stop)
    return rows.result()


def _decode(
    model: nn.Module,
    prompt_token_ids_B: Sequence[Sequence[int]],
    rows: RolloutRows,
    settings: RolloutSettings,
    should_stop: Callable[[], bool],
) -> None:
    device = base_model(model).device
    distinct: dict[tuple[int, ...], int] = {}
    sources = [distinct.setdefault(tuple(ids), len(distinct)) for ids in prompt_token_ids_B]
    input_ids_PW, mask_PW = left_padded(list(distinct), settings.pad_token_id, device)
    cache = RolloutCache(base_model(model).config)
    if should_stop():
        raise RolloutStopped
    output = model(
        input_ids=input_ids_PW,
        attention_mask=mask_PW,
        position_ids=(mask_PW.cumsum(dim=-1) - 1).clamp(min=0),
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    sources_B = torch.tensor(sources, device=device)
    cache.spread(sources_B, settings.max_response_length)
    logits_LV = output.logits[:, -1][sources_B]
    width = input_ids_PW.shape[1]
    mask_LW = nn.functional.pad(mask_PW[sources_B], (0, settings.max_response_length), value=1)
    positions_L1 = mask_PW.sum(dim=-1, keepdim=True)[sources_B]
    while True:
        tokens_L, over = rows.advance(logits_LV)
        if over:
            order = compacted_order(len(rows.live), over)
            if not order:
                return
            rows.keep(order)
            order_L = torch.tensor(order, device=device)
            cache.keep(order_L)
            tokens_L, mask_LW, positions_L1 = tokens_L[order_L], mask_LW[order_L], positions_L1[order_L]
        if should_stop():
            raise RolloutStopped
        width += 1
        output = model(
            input_ids=tokens_L[:, None],
            attention_mask=mask_LW[:, :width],
            position_ids=positions_L1,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits_LV = output.logits[:, -1]
        positions_L1 = positions_L1 + 1


def base_model(model: nn.Module) -> PreTrainedModel:
    """The transformers model itself, without peft's wrapper around it."""
    if isinstance(model, PreTrainedModel):
        return model
    base: PreTrainedModel = model.get_base_model()  # type: ignore[operator]  # a PeftModel
    return base


def missing_arguments(model: nn.Module) -> list[str]:
    """Arguments that the loop needs and the model's `forward` does not take; empty where it can run."""
    parameters = inspect.signature(type(base_model(model)).forward).parameters
    return [name for name in _FORWARD_ARGUMENTS if name not in parameters]


def left_padded(
    token_ids_B: Sequence[Sequence[int]], pad_token_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Returns input ids and attention mask, int64 [B, longest], padded on the left."""
    width = max(len(ids) for ids in token_ids_B)
    input_ids = [[pad_token_id] * (width - len(ids)) + list(ids) for ids in token_ids_B]
    mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in token_ids_B]
    return torch.tensor(input_ids, device=device), torch.tensor(mask, device=device)


@contextmanager
def generation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets back the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        # Not inference_mode: buffers that a model fills on the way could not take part in training later.
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
