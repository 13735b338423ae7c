"""Reward server, trainer and gateway, as `plaudit up` runs them, on free ports over a folder of their own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from harness import serving

from plaudit import Client


@contextmanager
def serving_all(folder: Path) -> Iterator[Client]:
    """Yields a client of the gateway. Raises ProgramFailedError."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = {"PLAUDIT_DATA_DIR": str(folder / "data"), "PLAUDIT_CONFIG": os.devnull}
    with ExitStack() as running:

        def start(module: str, options: tuple[str, ...], settings: dict[str, str]) -> dict[str, Any]:
            command = (
                sys.executable,
                "-m",
                module,
                "--die-with-stdin",
                *(f"{o}=127.0.0.1:0" for o in options),
            )
            environment = {**os.environ, **shared, **settings}
            log = folder / f"{module}.log"
            return running.enter_context(serving(module, command, log=log, environment=environment))

        reward = start("reward_service", ("--address",), {})["address"]
        trainer = start("trainer_service", ("--address",), {})["address"]
        peers = {
            "PLAUDIT_GATEWAY_TRAINERS": json.dumps([trainer]),
            "PLAUDIT_GATEWAY_REWARD_SERVERS": json.dumps({"builtin": [reward]}),
        }
        gateway = start("gateway", ("--grpc-address", "--http-address"), peers)
        yield running.enter_context(Client(gateway["grpc_address"]))
