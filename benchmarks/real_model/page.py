"""docs/results/smollm2.md, from what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from real_model.outcome import Outcome

_COLUMNS: Final = ("seed", "base", "final", "gain", "bar", "right: base", "right: final", "mixed", "s a step")


def page_of(
    outcomes: Sequence[Outcome],
    example: Mapping[str, Any],
    job: Mapping[str, Any],
    trained: int,
    held_out: int,
) -> str:
    """The page: what was done, the numbers, and a curve a seed."""
    settings = {k: v for k, v in job["hyperparameters"].items() if k not in ("seed", "eval_dataset_id")}
    turns = "\n".join(f"{turn['role']}: {turn['content']}" for turn in example["prompt"])
    on_the_way = [
        (step, *(f"{o.held_out[step]:.3f}" for o in outcomes)) for step in sorted(outcomes[0].held_out)
    ]
    numbers = [
        (
            *(o.seed, f"{o.base:.3f}", f"{o.final:.3f}", f"**{o.gain:+.3f}**", f"{2 * o.gain_error:.3f}"),
            *(
                f"{o.base_exact:.2f}",
                f"{o.final_exact:.2f}",
                f"{o.mixed_groups:.2f}",
                f"{o.step_seconds:.1f}",
            ),
        )
        for o in outcomes
    ]
    return f"""# SmolLM2-135M-Instruct learns small sums

Written by `make bench BENCH=real_model` with `--write`:

    .venv/bin/python benchmarks/real_model.py --write

A real model, a real task, on two CPU cores: SmolLM2-135M-Instruct (unpacked from 4-bit GGUF weights to
float32) gets small sums of reasoning-gym (`chain_sum`, two terms of one digit), with one example of the form
in the prompt. Half of the reward is a right answer (`exact_answer`), half the form and nothing beside it
(`format_check`). It trains on {trained} questions; {held_out} others are held out; no question is in both.

Held-out reward is what the trainer's evaluation measures, before the first step and after the last: greedy,
one completion a prompt. `gain` is the mean of the differences, prompt by prompt; it counts where it is above
two standard errors of that mean (`bar`). `mixed` is the share of the groups of the first five steps that were
not tied. Seconds a step tell as much of what else the machine did.

{_table(_COLUMNS, numbers)}

## Held-out reward on the way

{_table(("step", *(f"seed {o.seed}" for o in outcomes)), on_the_way)}

## Sampled reward of each step

{_chart(outcomes)}

Mean of 32 sampled completions a step, so it is noisier than what is held out. A line a seed.

## What was asked

A prompt:

```text
{turns}
```

Hyperparameters:

```json
{json.dumps(settings, indent=1)}
```

All numbers are in [smollm2.json](smollm2.json).
"""


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _chart(outcomes: Sequence[Outcome]) -> str:
    lines = "\n".join(f"    line {list(outcome.curve)}" for outcome in outcomes)
    last = len(outcomes[0].curve)
    return f"""```mermaid
xychart-beta
    x-axis "step" 1 --> {last}
    y-axis "reward_mean" 0 --> 1
{lines}
```"""
