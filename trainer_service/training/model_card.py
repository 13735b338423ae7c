"""The README.md of a model: what it is, and what it was made of."""

from __future__ import annotations

import json
from typing import Final

from plaudit.types.jobs import RunSpec
from trainer_service.exported import ModelKind, WeightType

_KINDS: Final[dict[ModelKind, str]] = {
    "full": "All weights were trained.",
    "merged": "Adapters (LoRA) were trained, and are merged into the weights.",
    "adapter": "Adapters (LoRA) alone: load them onto the base model with peft.",
}


def model_card(spec: RunSpec, *, job_id: str, step: int, kind: ModelKind, dtype: WeightType) -> str:
    """Markdown with the front matter that model hubs read."""
    library = "peft" if kind == "adapter" else "transformers"
    changed = spec.hyperparameters.model_dump(mode="json", exclude_defaults=True)
    settings = "\n".join(f"- {name}: {json.dumps(value)}" for name, value in changed.items())
    rewards = "\n".join(f"- {target.binding.weight:g} of {target.binding.name}" for target in spec.rewards)
    # A name in double quotes is the same in YAML as in JSON.
    return f"""---
base_model: {json.dumps(spec.base_model)}
library_name: {library}
pipeline_tag: text-generation
tags: [plaudit, {spec.method}]
---

# {spec.output_name}

Trained by Plaudit: {spec.method}, job `{job_id}`, after step {step}. {_KINDS[kind]} Weights in {dtype}.

Base model: `{spec.base_model}`{" and the checkpoints of earlier jobs" if spec.init_checkpoints else ""}.

## Hyperparameters that are not the default

{settings or "None."}
{f"{chr(10)}## Rewards{chr(10)}{chr(10)}{rewards}{chr(10)}" if rewards else ""}
## Licence

The licence of the base model applies.
"""
