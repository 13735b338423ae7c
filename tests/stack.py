"""All services of Plaudit as real processes on free loopback ports, which can be killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import psutil

from plaudit import Client
from plaudit.errors import PlauditError
from plaudit.types.statuses import JobStatus

START_SECONDS = 60.0
T = TypeVar("T")


class Service:
    """One service process. After a kill it is started again on the addresses that it had."""

    def __init__(
        self,
        name: str,
        module: str,
        options: Mapping[str, str],
        log_dir: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.addresses = dict.fromkeys(options, "127.0.0.1:0")
        self.process: subprocess.Popen[str] | None = None
        self._module = module
        self._options = options
        self._log = log_dir / f"{name}.log"
        self._environment = environment

    def start(self) -> None:
        """Starts the process and waits until it says where it listens."""
        assert self.process is None or self.process.poll() is not None
        options = [part for key, option in self._options.items() for part in (option, self.addresses[key])]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module, "--die-with-stdin", *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self._environment},
            )
        process = self.process
        watchdog = threading.Timer(START_SECONDS, process.kill)
        watchdog.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        watchdog.cancel()
        assert line, f"the {self.name} service did not start:\n{self.log()}"
        announced = json.loads(line)
        self.addresses = {key: announced[key] for key in self._options}

    @property
    def pid(self) -> int:
        """Process id of the running service."""
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        return self.process.returncode

    def log(self) -> str:
        """What the service wrote to stderr so far."""
        return self._log.read_text() if self._log.exists() else ""

    def descendants(self) -> list[psutil.Process]:
        """Every process that the service has started, directly or not."""
        return psutil.Process(self.pid).children(recursive=True)


class Stack:
    """Reward server, trainer and gateway over one data directory."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plaudit.toml").touch()
        shared = {
            "PLAUDIT_DATA_DIR": str(folder / "data"),
            "PLAUDIT_CONFIG": str(folder / "plaudit.toml"),
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        self.reward = Service("reward", "reward_service", {"address": "--address"}, folder, shared)
        self.trainer = Service("trainer", "trainer_service", {"address": "--address"}, folder, shared)
        self.gateway_environment = dict(shared)
        self.gateway = Service(
            "gateway",
            "gateway",
            {"grpc_address": "--grpc-address", "http_address": "--http-address"},
            folder,
            self.gateway_environment,
        )

    def start(self) -> None:
        """Starts all three; the gateway is told where the others listen."""
        self.reward.start()
        self.trainer.start()
        self.gateway_environment["PLAUDIT_GATEWAY_TRAINERS"] = json.dumps([self.trainer.addresses["address"]])
        self.gateway_environment["PLAUDIT_GATEWAY_REWARD_SERVERS"] = json.dumps(
            {"builtin": [self.reward.addresses["address"]]}
        )
        self.gateway.start()

    def stop(self) -> None:
        """Ends all three."""
        for service in (self.gateway, self.trainer, self.reward):
            service.stop()

    def cancel_jobs(self) -> None:
        """Cancels every job that can be cancelled, where the gateway is there."""
        with contextlib.suppress(PlauditError), self.client() as client:
            for job in client.training_jobs.list():
                if not job.status.is_terminal and job.status is not JobStatus.CANCELLING:
                    client.training_jobs.cancel(job.id)

    @property
    def grpc_address(self) -> str:
        """Where the gateway speaks gRPC."""
        return self.gateway.addresses["grpc_address"]

    @property
    def http_url(self) -> str:
        """Where the gateway speaks REST."""
        return f"http://{self.gateway.addresses['http_address']}"

    def client(self) -> Client:
        """A client of the gateway."""
        return Client(self.grpc_address)

    def logs(self) -> str:
        """The ends of all logs, for a failing test."""
        return "\n".join(
            f"--- {s.name}\n{s.log()[-4000:]}" for s in (self.gateway, self.trainer, self.reward)
        )


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = 110.0, pause: float = 0.1) -> T:
    """Returns the first value of `probe` that is neither None nor False, or fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value is not None and value is not False:
            return value
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(pause)
