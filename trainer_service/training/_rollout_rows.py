"""The rows of a rollout: settings, what each row has written so far, and how the next tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plaudit.types.scoring import FinishReason
from trainer_service.training.sampling import KeyedUniforms, NonFiniteLogits, require_finite, sample_tokens


class RolloutStopped(Exception):
    """`should_stop` said so in the middle of a rollout."""


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How completions are sampled.

    `max_response_length` is in tokens, the end token included. `temperature` 0 takes the likeliest token and
    draws nothing. `top_p` 1 and `top_k` 0 keep every token. A completion ends with any of `end_token_ids`.
    """

    max_response_length: int
    temperature: float
    top_p: float
    top_k: int
    end_token_ids: frozenset[int]
    pad_token_id: int


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """A completion that has ended.

    `index` is its position in the call's batch; `token_ids` is never empty, and holds the end token where
    `finish_reason` is STOP.
    """

    index: int
    token_ids: tuple[int, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """All completions of a call, in the order of its prompts.

    `token_ids_B` holds no empty list. `non_finite_rows` are those whose logits held NaN or an infinity: they
    were broken off there, were never passed to `on_finish`, and have the finish reason UNKNOWN.
    """

    token_ids_B: list[list[int]]
    finish_reasons_B: list[FinishReason]
    non_finite_rows: tuple[int, ...]


class RolloutRows:
    """Book of a rollout's rows, kept by the loop that runs the model."""

    def __init__(
        self,
        *,
        global_indices_B: Sequence[int],
        uniforms: KeyedUniforms,
        settings: RolloutSettings,
        on_finish: Callable[[FinishedRow], None],
    ) -> None:
        self.live = list(range(len(global_indices_B)))
        """Rows that still write; the loop's logits come in this order."""
        self._global_indices_B = list(global_indices_B)
        self._uniforms = uniforms
        self._settings = settings
        self._on_finish = on_finish
        self._token_ids_B: list[list[int]] = [[] for _ in self._global_indices_B]
        self._finish_reasons_B = [FinishReason.UNKNOWN] * len(self._global_indices_B)
        self._non_finite: list[int] = []
        self._position = 0

    def advance(self, logits_LV: Tensor) -> tuple[Tensor, list[int]]:
        """Chooses the next token of every live row and tells of those that end with it.

        Returns the tokens, int64 [L], and the places in `live`, ascending, of the rows that are over. `live`
        stays as it is until `keep`.
        """
        tokens_L, broken = self._choose(logits_LV)
        self._position += 1
        over: list[int] = []
        for place, (row, token) in enumerate(zip(self.live, tokens_L.tolist(), strict=True)):
            if place in broken:
                self._break_off(row)
                over.append(place)
                continue
            self._token_ids_B[row].append(token)
            if token in self._settings.end_token_ids:
                self._finish(row, FinishReason.STOP)
                over.append(place)
            elif self._position == self._settings.max_response_length:
                self._finish(row, FinishReason.LENGTH)
                over.append(place)
        return tokens_L, over

    def keep(self, places: Sequence[int]) -> None:
        """Makes `live` the rows at these of its places, in this order."""
        self.live = [self.live[place] for place in places]

    def result(self) -> RolloutResult:
        """What was written; valid once `live` is empty."""
        return RolloutResult(self._token_ids_B, self._finish_reasons_B, tuple(sorted(self._non_finite)))

    def _choose(self, logits_LV: Tensor) -> tuple[Tensor, frozenset[int]]:
        """Returns tokens, int64 [L], and the places of rows whose logits are not finite."""
        try:
            return self._choose_finite(logits_LV, self.live), frozenset()
        except NonFiniteLogits as error:
            broken = frozenset(error.rows)
        places = [place for place in range(len(self.live)) if place not in broken]
        tokens_L = logits_LV.new_full((len(self.live),), self._settings.pad_token_id, dtype=torch.int64)
        if places:
            rows = [self.live[place] for place in places]
            tokens_L[places] = self._choose_finite(logits_LV[places], rows)
        return tokens_L, broken

    def _choose_finite(self, logits_LV: Tensor, rows: Sequence[int]) -> Tensor:
        settings = self._settings
        if settings.temperature == 0.0:
            require_finite(logits_LV)
            return logits_LV.argmax(dim=-1)
        return sample_tokens(
            logits_LV,
            self._uniforms.draw([self._global_indices_B[row] for row in rows], self._position),
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
        )

    def _break_off(self, row: int) -> None:
        self._non_finite.append(row)
        if not self._token_ids_B[row]:
            # TRL cannot hold an empty completion.
            self._token_ids_B[row].append(self._settings.pad_token_id)

    def _finish(self, row: int, finish_reason: FinishReason) -> None:
        self._finish_reasons_B[row] = finish_reason
        self._on_finish(FinishedRow(row, tuple(self._token_ids_B[row]), finish_reason))
