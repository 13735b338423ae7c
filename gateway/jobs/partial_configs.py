"""Configurations without what is wrong in them: what is left can be judged at the same time."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")

Place = tuple[str | int, ...]
"""A way into JSON-like data: names of properties and indices of lists."""


@dataclass(frozen=True, slots=True)
class PartialConfig:
    """`config` is a configuration without the properties at `removed`, or with others in their places."""

    config: Mapping[str, Any]
    removed: frozenset[Place]

    def is_whole_at(self, place: Place) -> bool:
        """Whether what stands at `place`, or that nothing does, is as in the whole configuration."""
        return not any(
            removed[: len(place)] == place or place[: len(removed)] == removed for removed in self.removed
        )

    def lacks_name_of_column(self) -> bool:
        """Whether a property that may name a column of the dataset is gone."""
        names = [str(removed[-1]) for removed in self.removed]
        return any(name == "column" or name.endswith("_column") for name in names)


def place_of(field: str, config_field: str) -> Place | None:
    """Where in the configuration at `config_field` the path `field` of a request leads; None: elsewhere."""
    if not field.startswith(config_field):
        return None
    rest = field.removeprefix(config_field)
    steps = list(_STEP.finditer(rest))
    if "".join(step[0] for step in steps) != rest:
        return None
    return tuple(int(step[2]) if step[2] else step[1] for step in steps)


def without(
    config: Mapping[str, Any], places: Iterable[Place], stand_ins: Mapping[str, Any]
) -> PartialConfig | None:
    """`config` without what stands at `places`; of a list, the property that holds it goes. For a property of
    the configuration itself, which may be needed, that of `stand_ins` takes its place. None where that cannot
    be: a place is not there, such as a property that is missing, or is the whole.
    """
    left: Any = copy.deepcopy(dict(config))
    removed: set[Place] = set()
    for place in places:
        if any(place[: len(gone)] == gone for gone in removed):
            continue
        if not _holds(config, place):
            return None
        while place and isinstance(place[-1], int):
            place = place[:-1]
        if not place:
            return None
        holder = left
        for step in place[:-1]:
            holder = holder[step]
        if len(place) == 1 and place[0] in stand_ins:
            holder[place[0]] = stand_ins[str(place[0])]
        else:
            del holder[place[-1]]
        removed = {gone for gone in removed if gone[: len(place)] != place} | {place}
    return PartialConfig(left, frozenset(removed))


def examples_in(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The first example that a JSON Schema gives of each property; the schema may be odd."""
    properties = (schema or {}).get("properties")
    return {
        name: examples[0]
        for name, about in (properties.items() if isinstance(properties, Mapping) else ())
        if isinstance(about, Mapping) and isinstance(examples := about.get("examples"), list) and examples
    }


def _holds(data: Any, place: Place) -> bool:
    for step in place:
        if isinstance(step, int):
            there = isinstance(data, list | tuple) and step < len(data)
        else:
            there = isinstance(data, Mapping) and step in data
        if not there:
            return False
        data = data[step]
    return True
