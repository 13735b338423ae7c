"""One server for all hostile sources, which must not notice one another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sandbox_server import SandboxServer, needs_bwrap, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use the sandboxed server need bubblewrap."""
    for item in items:
        if "sandboxed" in getattr(item, "fixturenames", ()):
            item.add_marker(needs_bwrap)


@pytest.fixture(scope="session")
def sandboxed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxServer]:
    """A server whose python_function runs in bubblewrap, with small limits."""
    data_dir = tmp_path_factory.mktemp("sandbox-data")
    (data_dir / "secret.txt").write_text("secret of the data directory")
    with serving(data_dir, workers=3, memory_mb=512, tmp_mb=8, output_kb=256) as server:
        yield server
