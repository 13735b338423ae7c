"""Reward servers with certificates and tokens, and a gateway that watches them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "gateway_edges"))

from secured import Keys


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """One CA and its certificates, and what clients have of them in their secrets folder."""
    return Keys.make(tmp_path_factory.mktemp("keys"))
