"""Packages whose public names are loaded when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def late_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package that takes names from its `modules`, each loaded once it is needed.

    For packages of which a program needs a part, and the rest takes long to load. Type checkers are told the
    same by imports under TYPE_CHECKING, and must not see this function, which has an answer to any name.
    """
    places = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return find
