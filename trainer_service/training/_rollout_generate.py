"""The same rollout by transformers' `generate`, for models whose cache or positions our loop does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from trainer_service.training._rollout_loop import base_model, generation_mode, left_padded
from trainer_service.training._rollout_rows import (
    FinishedRow,
    RolloutResult,
    RolloutRows,
    RolloutSettings,
    RolloutStopped,
)
from trainer_service.training.sampling import KeyedUniforms


def roll_out_with_generate(
    model: nn.Module,
    prompt_token_ids_B: Sequence[Sequence[int]],
    *,
    global_indices_B: Sequence[int],
    uniforms: KeyedUniforms,
    settings: RolloutSettings,
    on_finish: Callable[[FinishedRow], None],
    should_stop: Callable[[], bool],
) -> RolloutResult:
    """As `roll_out`, and from the same randomness; slower: no shared prefill, finished rows stay."""
    if not prompt_token_ids_B:
        return RolloutResult([], [], ())
    rows = RolloutRows(
        global_indices_B=global_indices_B, uniforms=uniforms, settings=settings, on_finish=on_finish
    )
    generate(
        model,
        prompt_token_ids_B,
        max_new_tokens=settings.max_response_length,
        end_token_ids=settings.end_token_ids,
        pad_token_id=settings.pad_token_id,
        logits_processor=LogitsProcessorList([_ChosenToken(rows, settings, should_stop)]),
    )
    return rows.result()


def generate(
    model: nn.Module,
    prompt_token_ids_B: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    end_token_ids: frozenset[int],
    pad_token_id: int,
    logits_processor: LogitsProcessorList,
) -> Any:
    """Runs stock greedy `generate` without the model's own defaults; returns its output, scores included."""
    base = base_model(model)
    input_ids_BL, mask_BL = left_padded(prompt_token_ids_B, pad_token_id, base.device)
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=sorted(end_token_ids) or None,
        pad_token_id=pad_token_id,
        use_cache=True,
        return_dict_in_generate=True,
        output_scores=not logits_processor,
    )
    with generation_mode(model), _generation_config(base, config):
        return base.generate(  # type: ignore[operator]
            input_ids=input_ids_BL,
            attention_mask=mask_BL,
            generation_config=config,
            logits_processor=logits_processor,
        )


@contextmanager
def _generation_config(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    # `generate` fills what a config leaves open from the model's own, which may hold a repetition penalty:
    # the completions would then not be the policy's.
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own


class _ChosenToken(LogitsProcessor):
    """Chooses every row's token as our loop does, and leaves `generate` nothing else to pick."""

    def __init__(self, rows: RolloutRows, settings: RolloutSettings, should_stop: Callable[[], bool]) -> None:
        self._rows = rows
        self._settings = settings
        self._should_stop = should_stop

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Takes logits [B, V]; returns 0 for the chosen token and -inf for all others."""
        if self._should_stop():
            raise RolloutStopped
        # A row that is over gets an end token: for one broken off, `generate` has to learn that it is.
        filler = min(self._settings.end_token_ids, default=self._settings.pad_token_id)
        chosen_B = torch.full((len(scores),), filler, device=scores.device)
        if self._rows.live:
            live_L = torch.tensor(self._rows.live, device=scores.device)
            tokens_L, over = self._rows.advance(scores[live_L])
            chosen_B[live_L] = tokens_L
            gone = set(over)
            self._rows.keep([place for place in range(len(live_L)) if place not in gone])
        return torch.full_like(scores, -torch.inf).scatter(1, chosen_B[:, None], 0.0)
