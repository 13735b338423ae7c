"""How models are named: in a job, and where tokens are counted."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

BUILTIN_MODELS: Final = ("builtin:tiny",)
"""Models that ship with Plaudit."""
MAX_MODEL_NAME_LENGTH: Final = 512

_BUILTIN: Final = "builtin:"


def model_name_fault(name: str) -> str | None:
    """What is wrong with the name of a model, with the way out; None where it may be one."""
    if not name.strip():
        return "a model has a name: a hub id, or the path of a folder"
    if len(name) > MAX_MODEL_NAME_LENGTH:
        return f"the name of a model has at most {MAX_MODEL_NAME_LENGTH} characters"
    if name != name.strip() or not name.isprintable():
        return "the name of a model has no spaces around it and no control characters; take them out"
    if name.startswith(_BUILTIN) and name not in BUILTIN_MODELS:
        return f"of what ships with Plaudit there is {', '.join(BUILTIN_MODELS)}"
    return None


def _checked(name: str) -> str:
    fault = model_name_fault(name)
    if fault is not None:
        raise ValueError(fault)
    return name


ModelName = Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME_LENGTH), AfterValidator(_checked)]
"""Name of a model: hub id, path of a folder, or one of BUILTIN_MODELS."""
