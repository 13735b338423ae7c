import os

# Before torch and the hub's client are imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from collections.abc import Iterator

import pytest
import structlog
from run_harness import additions, reward_server, write_dataset


@pytest.fixture(scope="module")
def odd_server():
    with reward_server() as (address, _):
        yield address


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path / "artifacts", additions())


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    """A run that fails in this process logs its error as it is.

    By default structlog shows every frame of torch with all its variables, which takes longer than the run.
    """
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.KeyValueRenderer()]
    )
    yield
    structlog.reset_defaults()
