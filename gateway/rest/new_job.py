"""How the bodies that create jobs are documented; `gateway.jobs.requests` reads them."""

from __future__ import annotations

from typing import Any, Final

from gateway.jobs.requests import MAX_SOURCE_BYTES, MAX_SOURCES, NO_EFFECT
from plaudit.types.jobs import TrainingJobSpec

_SOURCE: Final = f"Text of a Python file with a function that scores, at most {MAX_SOURCE_BYTES // 1024} KiB."
_GPU: Final = {
    "type": ["object", "null"],
    "properties": {
        name: {"type": "string"} if name.endswith("type") else {"type": "integer", "minimum": 1}
        for name in ("gpu_type", "gpu_count", "type", "count")
    },
    "additionalProperties": False,
}
_EXTRA: Final[dict[str, dict[str, Any]]] = {
    "reward_source": {
        "type": ["string", "null"],
        "description": f"Instead of rewards. {_SOURCE}",
    },
    "reward_sources": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "maxItems": MAX_SOURCES,
        "description": f"Instead of rewards, several. {_SOURCE}",
    },
    "reward_function_id": {
        "type": ["string", "null"],
        "description": "Instead of rewards: id or name of a reward function.",
    },
    "reward_function_ids": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "maxItems": MAX_SOURCES,
        "description": "Instead of rewards: ids or names of several reward functions.",
    },
    "reward_weights": {
        "type": ["array", "null"],
        "items": {"type": "number"},
        "description": "Weights of reward_sources or reward_function_ids, as many; 1 each where left out.",
    },
    "requires_heartbeat": {
        "type": ["boolean", "null"],
        "description": "Cancel the job where its client, once it sent a heartbeat, sends none any more.",
    },
    "gpu": _GPU,
    "provider": {"type": ["string", "null"]},
    "region": {"type": ["string", "null"]},
    "checkpoint_destination": {"type": ["object", "null"]},
    "hf_push": {"type": ["object", "null"]},
}


def job_schemas() -> dict[str, Any]:
    """Schemas of NewTrainingJob and TrainingJobOverrides, and all that they refer to."""
    spec = TrainingJobSpec.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions: dict[str, Any] = spec.pop("$defs")
    # The name of a binding is its reward's where it is not given.
    definitions["RewardBinding"]["required"].remove("name")
    extra = {
        name: {**schema, "description": f"Accepted, and has no effect here: {NO_EFFECT[name]}."}
        if name in NO_EFFECT
        else schema
        for name, schema in _EXTRA.items()
    }
    properties = {**spec["properties"], **extra}
    new = {
        **spec,
        "title": "NewTrainingJob",
        "description": "What to train. Its rewards are named in one of five ways.",
        "properties": properties,
    }
    overrides = {
        **{name: value for name, value in spec.items() if name != "required"},
        "title": "TrainingJobOverrides",
        "description": "What is to be other than in the job that is cloned.",
        "properties": properties,
    }
    return {**definitions, "NewTrainingJob": new, "TrainingJobOverrides": overrides}
