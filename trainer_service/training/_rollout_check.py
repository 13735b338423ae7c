"""Start-up check: does our decode loop write what transformers' `generate` writes for this model?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import LogitsProcessorList, PreTrainedTokenizerBase

from trainer_service.training._rollout_generate import generate, roll_out_with_generate
from trainer_service.training._rollout_loop import base_model, missing_arguments, roll_out
from trainer_service.training._rollout_rows import FinishedRow, RolloutResult, RolloutSettings
from trainer_service.training.sampling import KeyedUniforms

_PROMPTS = 4
_PROMPT_TOKENS = 256
"""The check shall take a moment, not a share of the run."""

_NEW_TOKENS = 12

_TIE = {True: 5e-2, False: 1e-3}
"""A gap between two logits, in standard deviations of the row, that rounding can close: half precision, or
float32."""


class Rollout(Protocol):
    """`roll_out`, or `roll_out_with_generate`."""

    def __call__(
        self,
        model: nn.Module,
        prompt_token_ids_B: Sequence[Sequence[int]],
        *,
        global_indices_B: Sequence[int],
        uniforms: KeyedUniforms,
        settings: RolloutSettings,
        on_finish: Callable[[FinishedRow], None],
        should_stop: Callable[[], bool],
    ) -> RolloutResult:
        """Samples a completion for every prompt."""


@dataclass(frozen=True, slots=True)
class RolloutCheck:
    """What the check found: `rollout` is the one to use, `detail` says why, for the log."""

    agrees: bool
    detail: str

    @property
    def rollout(self) -> Rollout:
        """`roll_out` where it agrees with `generate`, else the one by `generate`."""
        return roll_out if self.agrees else roll_out_with_generate


def check_against_generate(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Sequence[int]]
) -> RolloutCheck:
    """Compares greedy tokens of our loop and of stock `generate` on a few of the prompts (token ids).

    Prompts of different lengths, each twice, and an end in the middle, so that padding, the shared prefill
    and the dropping of rows all take part. Tokens that differ by less than rounding count as equal.
    """
    missing = missing_arguments(model)
    name = type(base_model(model)).__name__
    if missing:
        return RolloutCheck(False, f"{name} takes no {', '.join(missing)}: stock generate is used")
    pad_token_id = int(tokenizer.pad_token_id or 0)
    probes = _ragged(prompts)
    stock = generate(
        model,
        probes,
        max_new_tokens=_NEW_TOKENS,
        end_token_ids=frozenset(),
        pad_token_id=pad_token_id,
        logits_processor=LogitsProcessorList(),
    )
    expected_BT: list[list[int]] = stock.sequences[:, -_NEW_TOKENS:].tolist()
    end_token_id = expected_BT[0][_NEW_TOKENS // 2]
    settings = RolloutSettings(_NEW_TOKENS, 0.0, 1.0, 0, frozenset({end_token_id}), pad_token_id)
    doubled = [probe for probe in probes for _ in range(2)]
    try:
        ours = roll_out(
            model,
            doubled,
            global_indices_B=range(len(doubled)),
            uniforms=KeyedUniforms(0, 0, "check"),
            settings=settings,
            on_finish=lambda row: None,
            should_stop=lambda: False,
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return RolloutCheck(False, f"{name} does not run in our loop ({error!r}): stock generate is used")
    half = base_model(model).dtype != torch.float32 or torch.is_autocast_enabled(
        base_model(model).device.type
    )
    for row, token_ids in enumerate(ours.token_ids_B):
        expected = _cut(expected_BT[row // 2], end_token_id)
        position = _first_difference(token_ids, expected)
        if position is None:
            continue
        scores_V = stock.scores[position][row // 2]
        if not _tied(scores_V, token_ids[position], expected[position], _TIE[half]):
            return RolloutCheck(
                False,
                f"{name} writes {token_ids} in our loop and {expected} in generate: stock generate is used",
            )
    return RolloutCheck(True, f"{name} writes the same in our loop as in generate")


def _ragged(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    probes = [list(prompt[-_PROMPT_TOKENS:]) for prompt in prompts[:_PROMPTS]]
    if len({len(probe) for probe in probes}) == 1:
        # Without padding, wrong positions would go unnoticed.
        probes.append(probes[0][len(probes[0]) // 2 :])
    return probes


def _cut(token_ids: list[int], end_token_id: int) -> list[int]:
    return token_ids[: token_ids.index(end_token_id) + 1] if end_token_id in token_ids else token_ids


def _first_difference(left: list[int], right: list[int]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)


def _tied(scores_V: Tensor, left: int, right: int, tolerance: float) -> bool:
    gap = (scores_V[left] - scores_V[right]).abs()
    return bool(gap <= tolerance * scores_V.std())
