"""One stack for the end-to-end tests that do not kill anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Reward server, trainer and gateway, running."""
    running = Stack(Path(tmp_path_factory.mktemp("stack")))
    try:
        running.start()
        yield running
    finally:
        running.stop()
