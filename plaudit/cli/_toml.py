"""Job specs as TOML, for people to read and to keep as a job file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plaudit.types.jobs import TrainingJobSpec


def job_as_toml(spec: TrainingJobSpec) -> str:
    """A job file with every field of a spec; what has no value, which TOML cannot say, is a comment."""
    data: dict[str, Any] = spec.model_dump(mode="json", warnings=False)
    tables = {"hyperparameters": data.pop("hyperparameters")}
    rewards: list[dict[str, Any]] = data.pop("rewards")
    lines = [_line(name, value) for name, value in data.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(_line(key, value) for key, value in table.items())]
    for reward in rewards:
        lines += ["", "[[rewards]]", *(_line(key, value) for key, value in reward.items())]
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """A JSON-like value, without null, as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # TOML wants digits on both sides of a point, and takes 1e-06 as it is.
        return repr(value)
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{json.dumps(key)} = {toml_value(item)}" for key, item in value.items() if item is not None
        )
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    # Of JSON's escapes TOML lacks only halves of surrogate pairs, which no spec holds; DEL it must escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _line(name: str, value: object) -> str:
    return f"# {name} is not set" if value is None else f"{name} = {toml_value(value)}"
