"""`make test-containers`: builds compose.yaml, trains through its published ports, and kills containers.

Starts what it needs, and ends and removes it: containers, volumes, its own Docker where there was none. With
KEEP=folder, Docker's data stays there, so that the next run builds from its cache.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2
from docker_machine import compose, docker, make_base_image

from plaudit import Client
from plaudit.errors import PermissionDeniedError, UnauthenticatedError
from plaudit.types.statuses import JobStatus

ROOT: Final = Path(__file__).resolve().parents[2]
SERVICES: Final = ("gateway", "trainer", "reward")
PROJECT: Final = f"plaudit-test-{os.getpid()}"
BUILD_SECONDS: Final = 3600
WAIT_SECONDS: Final = 300
PARAMETERS: Final = {
    "max_steps": 120,
    "rollouts_per_prompt": 4,
    "global_batch_size": 8,
    "max_response_length": 8,
    "checkpoint_every": 5,
    "lora_rank": 4,
    "seed": 7,
}


class Containers:
    """The services of compose.yaml, as a project of this run."""

    def __init__(self, environment: dict[str, str], command: list[str]) -> None:
        self.grpc_port, self.http_port = _free_port(), _free_port()
        self._environment = {
            **environment,
            "PLAUDIT_GRPC_PORT": str(self.grpc_port),
            "PLAUDIT_HTTP_PORT": str(self.http_port),
        }
        self._command = [*command, "--project-name", PROJECT, "--file", str(ROOT / "compose.yaml")]

    def compose(self, *arguments: str, seconds: float = 120) -> str:
        """Runs Compose; its standard output. Its other output is shown as it comes."""
        done = subprocess.run(
            [*self._command, *arguments],
            env=self._environment, stdout=subprocess.PIPE, text=True, timeout=seconds, check=True,
        )  # fmt: skip
        return done.stdout

    def inspect(self, service: str) -> dict[str, Any]:
        """What Docker knows of a service's container."""
        container = self.compose("ps", "--all", "--quiet", service).strip()
        done = subprocess.run(
            ["docker", "inspect", container],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)[0]
        return found

    def kill(self, service: str) -> None:
        """kill -9 of all that runs in a container, which ends it as a crash would."""
        before = self.inspect(service)["RestartCount"]
        self.compose("exec", "-T", service, "sh", "-c", "kill -9 -1 || true")
        began = time.monotonic()
        _until(lambda: self.inspect(service)["RestartCount"] > before, f"{service} to be started again")
        _until(lambda: self.inspect(service)["State"]["Health"]["Status"] == "healthy", f"{service} to serve")
        _tell(f"{service} was killed, and serves again after {time.monotonic() - began:.1f} s")


def check(containers: Containers) -> None:
    """Everything that is looked at, in the order in which it is done."""
    began = time.monotonic()
    containers.compose("build", seconds=BUILD_SECONDS)
    _tell(f"built in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    containers.compose(
        "up", "--detach", "--wait", "--wait-timeout", str(WAIT_SECONDS), seconds=WAIT_SECONDS + 60
    )
    _tell(f"up and healthy in {time.monotonic() - began:.1f} s")
    for service in SERVICES:
        _check_container(service, containers.inspect(service))
    made = containers.compose(
        "exec", "-T", "gateway", "plaudit", "token", "create", "--data-dir", "/data",
        "--name", "operator", "--role", "operator", "--json",
    )  # fmt: skip
    token = json.loads(made)["secret"]
    _check_doors(containers, token)
    with Client(f"127.0.0.1:{containers.grpc_port}", token=token, retry_seconds=120) as client:
        job = client.training_jobs.create(
            base_model="builtin:tiny",
            dataset_id="builtin:additions",
            output_name="adder",
            hyperparameters=PARAMETERS,
            rewards=[{"server": "builtin", "reward": "exact_answer"}],
        )
        _until(lambda: client.training_jobs.get(job.id).current_step >= 6, "the job to train", seconds=600)
        # The trainer first: while others come back, the job might end.
        for service in ("trainer", "gateway", "reward"):
            containers.kill(service)
        _until(lambda: client.training_jobs.get(job.id).status.is_terminal, "the job to be over", seconds=900)
        done = client.training_jobs.get(job.id)
        assert done.status is JobStatus.COMPLETED, done
        assert (done.current_step, done.created_by) == (PARAMETERS["max_steps"], "operator"), done
        assert done.attempt > 1, "the killed trainer must have cost an attempt"
        _tell(f"the job is completed after {done.attempt} attempts")


def _check_container(service: str, found: dict[str, Any]) -> None:
    assert found["Config"]["User"] not in ("", "root", "0"), service
    assert found["HostConfig"]["ReadonlyRootfs"], service
    assert found["HostConfig"]["CapDrop"] == ["ALL"], service
    published = [
        entry["HostIp"] for entries in found["NetworkSettings"]["Ports"].values() for entry in entries or ()
    ]
    assert published == (["127.0.0.1", "127.0.0.1"] if service == "gateway" else []), (service, published)


def _check_doors(containers: Containers, token: str) -> None:
    url = f"http://127.0.0.1:{containers.http_port}"
    assert httpx2.get(f"{url}/health", trust_env=False).status_code == 200
    assert httpx2.get(f"{url}/v1/me", trust_env=False).status_code == 401
    me = httpx2.get(f"{url}/v1/me", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert me.json()["role"] == "operator"
    address = f"127.0.0.1:{containers.grpc_port}"
    with Client(address, token="vk_wrong") as client:
        _raises(UnauthenticatedError, client.tokens.caller)
    with Client(address, token=token) as client:
        _raises(PermissionDeniedError, lambda: client.reward_servers.create("x", ["127.0.0.1:1"]))
        (server,) = client.reward_servers.list()
        assert server.reachable, server.unreachable_reason
    # Nobody without a certificate of this network is spoken to, not even from within it.
    for service, port in (("trainer", 7432), ("reward", 7433)):
        asked = ("exec", "-T", "gateway", "python", "-m", "plaudit.rpc.health", f"{service}:{port}")
        _raises(subprocess.CalledProcessError, lambda asked=asked: containers.compose(*asked))
        _raises(
            subprocess.CalledProcessError, lambda asked=asked: containers.compose(*asked, "--ca", "plaudit")
        )
        containers.compose(*asked, "--ca", "plaudit", "--client-certificate", "service")
    _tell("tokens, roles, certificates and ports are as they should be")


def _raises(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def _until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.5)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _tell(words: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {words}", flush=True)


def main() -> int:
    """Runs it all; the exit status."""
    # Ended from outside, it still ends and removes what it started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    kept = os.environ.get("KEEP")
    scratch = Path(kept).resolve() if kept else Path(tempfile.mkdtemp(prefix="plaudit-containers-"))
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        with docker(scratch) as environment:
            make_base_image(environment, scratch)
            containers = Containers(environment, compose(environment, ROOT / ".venv" / "containers"))
            try:
                check(containers)
            except BaseException:
                print(containers.compose("logs", "--no-color", "--tail", "60"), flush=True)
                raise
            finally:
                containers.compose("down", "--volumes", "--remove-orphans", "--timeout", "30")
    finally:
        if not kept:
            shutil.rmtree(scratch, ignore_errors=True)
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
