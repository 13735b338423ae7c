"""Servers that differ from the correct one by one fault each.

Each is a subclass that overrides one thing; `breaks` is the id of the rule that must name it.
"""

from __future__ import annotations

from types import ModuleType

import broken_batches
import broken_beginnings
import broken_extras
import broken_results
from correct_server import CorrectServer


def _servers_of(module: ModuleType) -> list[type[CorrectServer]]:
    return [
        found
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, CorrectServer) and found is not CorrectServer
    ]


FAULTS: dict[str, type[CorrectServer]] = {
    server.__name__: server
    for module in (broken_beginnings, broken_results, broken_batches, broken_extras)
    for server in _servers_of(module)
}
