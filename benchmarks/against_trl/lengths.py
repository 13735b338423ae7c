"""Makes completions end where a plan says, in the same way on both sides.

A random model ends nothing by itself, and chance would give each side other lengths, hence other work. So a
hook on the model bends the logits of every generating pass: at each position as many completions are made to
end as the plan has of that length, and no other can. Which of them is chance. Training passes stay as they
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

_NEVER = -1e4
"""Added to a logit, and still a finite number, so that nobody takes it for a fault."""


class PlannedEnds:
    """The hook. `lengths_B` is one length a completion, in tokens; those of `longest` are cut, not ended."""

    def __init__(
        self, model: nn.Module, *, lengths_B: Sequence[int], longest: int, end_token_id: int
    ) -> None:
        self._total = len(lengths_B)
        self._ending_at = Counter(length for length in lengths_B if length < longest)
        self._end_token_id = end_token_id
        self._chance = torch.Generator().manual_seed(0)
        self._position = 0
        self._ended: set[int] = set()
        model.register_forward_hook(self._bend, with_kwargs=True)

    def _bend(self, model: object, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if not kwargs.get("use_cache"):
            # Nothing is generated: a training pass.
            return
        if kwargs["input_ids"].shape[1] > 1:
            # The prompts: generation begins.
            self._position, self._ended = 1, set()
            output.logits[:, -1, self._end_token_id] += _NEVER
            return
        self._position += 1
        logits_LV = output.logits[:, -1]
        # An engine that keeps its finished rows shows all of them; the others only those that go on.
        keeps_all = len(logits_LV) == self._total
        live = [row for row in range(len(logits_LV)) if not (keeps_all and row in self._ended)]
        order = torch.randperm(len(live), generator=self._chance)
        ending = [live[place] for place in order[: self._ending_at[self._position]].tolist()]
        logits_LV[:, self._end_token_id] += _NEVER
        logits_LV[ending, self._end_token_id] -= 2 * _NEVER
        self._ended.update(ending)
