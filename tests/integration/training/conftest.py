import os

# Before torch and the hub's client are imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import pytest
from run_harness import additions, reward_server, write_dataset


@pytest.fixture(scope="module")
def odd_server():
    with reward_server() as (address, _):
        yield address


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path / "artifacts", additions())
