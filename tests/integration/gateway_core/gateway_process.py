"""A gateway process that works with a scripted trainer, and a job for it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from gateway_room import FAST
from scripted_trainer import ScriptedTrainer

from plaudit.gateway.v1 import training_job_pb2 as job_pb
from plaudit.gateway.v1 import training_job_service_pb2 as pb


class GatewayProcess:
    """`python -m gateway`, on the same ports after each kill."""

    def __init__(self, folder: Path, trainer: ScriptedTrainer) -> None:
        self.addresses = {"grpc_address": "127.0.0.1:0", "http_address": "127.0.0.1:0"}
        self.process: asyncio.subprocess.Process | None = None
        self._log = folder / "gateway.log"
        self._environment = {
            **os.environ,
            "PLAUDIT_DATA_DIR": str(folder),
            "PLAUDIT_CONFIG": os.devnull,
            "PLAUDIT_GATEWAY_TRAINERS": json.dumps([trainer.address]),
            "PLAUDIT_GATEWAY_REWARD_SERVERS": json.dumps({"builtin": ["127.0.0.1:1"]}),
            **{f"PLAUDIT_GATEWAY_{name.upper()}": str(value) for name, value in FAST.items()},
        }

    async def start(self) -> None:
        options = [f"--{name.replace('_', '-')}={address}" for name, address in self.addresses.items()]
        with self._log.open("a") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway", "--die-with-stdin", *options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
            )
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        assert line, self._log.read_text()
        announced = json.loads(line)
        assert announced.pop("service") == "gateway"
        self.addresses = announced

    async def end(self, number: int) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), 30)


def new_job(request_id: str) -> pb.CreateTrainingJobRequest:
    return pb.CreateTrainingJobRequest(
        spec=job_pb.TrainingJobSpec(
            base_model="builtin:tiny",
            dataset_id="builtin:additions",
            output_name="adder",
            method="grpo",
            rewards=[job_pb.RewardBinding(server="builtin", reward="exact_answer")],
        ),
        request_id=request_id,
    )
