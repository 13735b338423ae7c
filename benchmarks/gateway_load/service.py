"""The gateway as a process of its own, over a folder of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from harness import serving

from gateway.settings import GatewaySettings


@contextmanager
def serving_gateway(folder: Path, trainers: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Runs `python -m gateway`; yields its `grpc_address` and `http_address`. Raises ProgramFailedError."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "PLAUDIT_DATA_DIR": str(folder),
        "PLAUDIT_CONFIG": os.devnull,
        "PLAUDIT_GATEWAY_TRAINERS": json.dumps(list(trainers)),
        # Nothing listens there: no reward is asked for here.
        "PLAUDIT_GATEWAY_REWARD_SERVERS": json.dumps({"builtin": ["127.0.0.1:1"]}),
    }
    command = (
        *(sys.executable, "-m", "gateway", "--die-with-stdin"),
        *("--grpc-address=127.0.0.1:0", "--http-address=127.0.0.1:0"),
    )
    log = folder / "gateway.log"
    with serving("gateway", command, log=log, environment={**os.environ, **options}) as announced:
        yield announced


def gateway_process() -> psutil.Process:
    """The gateway that this process runs."""
    (gateway,) = (child for child in psutil.Process().children() if child.cmdline()[1:3] == ["-m", "gateway"])
    return gateway


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time that a process has taken: it depends less than time on what else the machine does."""
    used = process.cpu_times()
    return used.user + used.system


def settings_of(folder: Path) -> GatewaySettings:
    """What that gateway reads, for work on its store while it does not run."""
    os.environ["PLAUDIT_CONFIG"] = os.devnull
    return GatewaySettings.load(data_dir=folder, trainers=[], reward_servers={"builtin": ["127.0.0.1:1"]})
