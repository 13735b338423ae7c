import json
import os
import subprocess
import sys
from pathlib import Path

# Before torch and the hub's client are imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

sys.path.insert(0, str(Path(__file__).parent.with_name("training")))
sys.path.insert(0, str(Path(__file__).parent.with_name("gateway_core")))

import pytest
from run_harness import ENVIRONMENT, additions, write_dataset

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def probed_server():
    """preflight_rewards.py as a process; its address."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "preflight_rewards.py"), "--die-with-stdin", "--address", "127.0.0.1:0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path / "artifacts", additions())
