"""The checks of `plaudit doctor`, each of which says what it found and the way out."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import grpc.aio

from plaudit import __version__
from plaudit.client import Client, models
from plaudit.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    PlauditError,
    UnavailableError,
    UnimplementedError,
)
from plaudit.rpc import Credentials, Endpoint, error_from_rpc
from plaudit.service import DEFAULT_ADDRESSES, config_file, configured, default_data_dir, default_secrets
from plaudit.trainer.v1 import trainer_service_pb2
from plaudit.trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub
from plaudit.types.access import ServerAccess
from plaudit.types.addresses import is_loopback
from plaudit.types.validation import shown

_SECONDS: Final = 3.0
_LEAST_FREE_BYTES: Final = 2 * 1024**3
"""Below this a gateway takes no new work."""
_FEW_FREE_BYTES: Final = 10 * 1024**3
_MOST_SKEW: Final = timedelta(seconds=5)
_WITHOUT_PROXY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_START_TRAINER: Final = "start it (`plaudit up` on one machine, else `python -m trainer_service`)"
_VARIABLES: Final = "PLAUDIT_"
_FILE_VARIABLE: Final = "PLAUDIT_CONFIG"
_EXTRA: Final = re.compile(r"^([A-Za-z0-9._-]+).*;.*extra == [\"'](\w+)[\"']")


class State(StrEnum):
    """Whether something is as it should be."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and the way out where it is not good."""

    name: str
    state: State
    found: str
    way_out: str = ""


def checks_of_machine() -> Iterator[Check]:
    """What can be told without a gateway."""
    yield Check("version", State.OK, f"plaudit {__version__}")
    try:
        folder = default_data_dir()
    except InvalidArgumentError as error:
        yield Check("configuration", State.FAIL, error.message, "mend it; services do not start with it")
        return
    yield Check("configuration", State.OK, _configuration())
    yield _disk(folder)
    yield _sandbox()
    yield _extras()


def checks_of_gateway(client: Client) -> Iterator[Check]:
    """The gateway, and what only it can tell."""
    asked_at = datetime.now(UTC)
    try:
        servers = client.reward_servers.list()
    except PlauditError as error:
        yield Check("gateway", State.FAIL, error.message, _way_into(client.address, error))
        if isinstance(error, UnavailableError | DeadlineExceededError) and is_loopback(client.address):
            yield from _configured_trainers()
        return
    answered_at = datetime.now(UTC)
    yield Check("gateway", State.OK, f"{client.address} answers")
    yield from _gateway_version(client.address)
    yield from _clocks(servers, asked_at, answered_at)
    yield from _reward_servers(servers)
    yield from _trainers(client)
    yield from _waiting_jobs(client)


def _configured_trainers() -> Iterator[Check]:
    """Where no gateway can be asked: the trainers that one started here would have."""
    try:
        named = configured("gateway", "trainers")
        own = configured("trainer", "address") or DEFAULT_ADDRESSES.trainer
    except InvalidArgumentError:
        return  # the check of the configuration has told it
    if named is None:
        # `plaudit up` tells its gateway where its trainer is.
        yield _configured_trainer(own, State.WARN)
    elif isinstance(named, list) and named:
        for entry in named:
            yield _configured_trainer(entry, State.FAIL)
    else:
        yield Check(
            "trainers",
            State.WARN,
            f"this machine's configuration names none for a gateway: {shown(named)}",
            "`plaudit up` adds its own; else name one in the gateway's settings (trainers)",
        )


def _configuration() -> str:
    """Where settings come from; of variables the names, as a value may be a secret."""
    file = config_file()
    found = str(file.resolve()) if file.exists() else "no plaudit.toml here"
    variables = sorted(
        name
        for name, value in os.environ.items()
        if name.startswith(_VARIABLES) and name != _FILE_VARIABLE and value
    )
    if variables:
        return f"{found}; set by variables, which win: {', '.join(variables)}"
    return found if file.exists() else f"{found} and no variable, so that every setting has its default"


def _disk(folder: Path) -> Check:
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 1024**3:.1f} GiB free for {folder}"
    if not os.access(place, os.W_OK):
        return Check(
            "disk", State.FAIL, f"{place} cannot be written to", "set PLAUDIT_DATA_DIR to a folder of yours"
        )
    if free < _LEAST_FREE_BYTES:
        return Check("disk", State.FAIL, found, "make room, or set PLAUDIT_DATA_DIR to a larger disk")
    if free < _FEW_FREE_BYTES:
        return Check("disk", State.WARN, found, "checkpoints take room: make some, or keep fewer of them")
    return Check("disk", State.OK, found)


def _sandbox() -> Check:
    way_out = "install it (apt install bubblewrap); without it python_function runs no reward code"
    program = shutil.which("bwrap")
    if program is None:
        return Check("sandbox", State.WARN, "bubblewrap (bwrap) is not installed", way_out)
    command = [program, "--ro-bind", "/", "/", "--unshare-all", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("sandbox", State.WARN, f"bubblewrap cannot be run: {error}", way_out)
    if tried.returncode:
        return Check(
            "sandbox",
            State.WARN,
            f"bubblewrap cannot make a sandbox: {tried.stderr.strip()}",
            "allow user namespaces for this user, or run the reward server where they are",
        )
    return Check("sandbox", State.OK, "bubblewrap makes sandboxes")


def _extras() -> Check:
    wanted: dict[str, list[str]] = {}
    for requirement in metadata.requires("plaudit") or ():
        if match := _EXTRA.match(requirement):
            wanted.setdefault(match[2], []).append(match[1])
    for extra in ("all", "dev"):
        wanted.pop(extra, None)
    missing = {extra: [name for name in names if not _is_installed(name)] for extra, names in wanted.items()}
    there = [extra for extra, lacking in missing.items() if not lacking]
    absent = [f"{extra} (lacks {', '.join(lacking)})" for extra, lacking in missing.items() if lacking]
    found = f"installed: {', '.join(there) or 'none, so that this is a client'}"
    if absent:
        # A client needs none of them: whoever misses one is told where it is used.
        return Check("extras", State.OK, f"{found}; not installed: {'; '.join(absent)}")
    return Check("extras", State.OK, found)


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _way_into(address: str, error: PlauditError) -> str:
    if error.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return "set PLAUDIT_TOKEN, or PLAUDIT_TOKEN_FILE, to a token of this gateway"
    if is_loopback(address):
        return "start it with `plaudit up`, or set PLAUDIT_ADDRESS to where it is"
    return "check that it runs, that this machine reaches it, and whether it speaks TLS (PLAUDIT_TLS)"


def _gateway_version(address: str) -> Iterator[Check]:
    """Only REST tells it, and only of a gateway on this machine is its place known."""
    if not is_loopback(address):
        return
    http = configured("gateway", "http_address") or DEFAULT_ADDRESSES.gateway_http
    try:
        with closing(
            urllib.request.urlopen(f"http://{http}/", timeout=_SECONDS)
        ) as answer:  # http, to loopback
            found = re.search(rb'"version":\s*"([^"]+)"', answer.read(65_536))
    except (OSError, ValueError):
        yield Check(
            "rest",
            State.WARN,
            f"http://{http} does not answer",
            "REST may listen elsewhere: see the gateway's log",
        )
        return
    version = found[1].decode() if found else "unknown"
    if version == __version__:
        yield Check("rest", State.OK, f"http://{http} answers, version {version}")
    else:
        yield Check(
            "rest",
            State.WARN,
            f"http://{http} has version {version}, and this command {__version__}",
            "install the same version on both sides",
        )


def _clocks(servers: list[models.RewardServer], asked_at: datetime, answered_at: datetime) -> Iterator[Check]:
    """By the times that the gateway gives to what it has just seen."""
    seen = [r.checked_at for server in servers for r in server.replicas if r.checked_at is not None]
    if not seen:
        return
    newest = max(seen)
    skew = max(newest - answered_at, asked_at - newest, timedelta())
    if skew > _MOST_SKEW:
        yield Check(
            "clocks",
            State.WARN,
            f"the gateway's clock and this one differ by about {skew.total_seconds():.0f} s",
            "set both by NTP: certificates, tokens and times in tables depend on it",
        )
    else:
        yield Check("clocks", State.OK, "the gateway's clock agrees with this one")


def _reward_servers(servers: list[models.RewardServer]) -> Iterator[Check]:
    if not servers:
        yield Check(
            "reward servers", State.FAIL, "none is registered", "plaudit reward-server add NAME host:port"
        )
    for server in servers:
        name = f"reward server {server.name}"
        broken = [r for r in server.replicas if r.state is not models.ReplicaState.SERVING]
        told = "; ".join(f"{r.address} {r.state.value.replace('_', ' ')}: {r.reason}" for r in broken)
        if not server.reachable:
            yield Check(
                name, State.FAIL, told or server.unreachable_reason, "start it; jobs that name it wait for it"
            )
        elif broken or server.warnings:
            found = "; ".join(part for part in (told, *server.warnings) if part)
            yield Check(name, State.WARN, found, "see docs/reward-server-trouble.md")
        else:
            yield Check(name, State.OK, f"{len(server.rewards)} rewards, {server.server_version}")


def _waiting_jobs(client: Client) -> Iterator[Check]:
    """What keeps jobs from going on."""
    waiting = [
        job for job in client.training_jobs.list() if not job.status.is_terminal and job.status_detail
    ][:5]
    for job in waiting:
        yield Check(
            f"job {job.id}", State.WARN, f"{job.status}: {job.status_detail}", f"plaudit job events {job.id}"
        )


def _trainers(client: Client) -> Iterator[Check]:
    """As the gateway finds them, which gives them the jobs."""
    try:
        trainers = client.trainers.list()
    except UnimplementedError as error:
        yield Check("trainers", State.WARN, error.message, "install the same version on both sides")
        return
    if not trainers:
        yield Check(
            "trainers",
            State.FAIL,
            "the gateway has none, so that jobs stay queued",
            "name one in the gateway's settings (trainers), and start it again",
        )
    for trainer in trainers:
        yield _trainer(trainer)


def _trainer(trainer: models.Trainer) -> Check:
    name = f"trainer {trainer.address}"
    if trainer.state is models.TrainerState.AWAY:
        return Check(name, State.FAIL, trainer.problem, f"{_START_TRAINER}; jobs stay queued")
    if trainer.state is models.TrainerState.NOT_ASKED:
        return Check(name, State.WARN, "the gateway has not asked it yet", "try again in some seconds")
    return _serving_trainer(
        name, trainer.version, f"{trainer.max_concurrent_runs} runs at once, as the gateway finds it"
    )


def _configured_trainer(entry: object, where_away: State) -> Check:
    fields: Mapping[str, Any] = entry if isinstance(entry, dict) else {"address": entry}
    address = str(fields.get("address"))
    name = f"trainer {address}"
    try:
        access = ServerAccess.model_validate(
            {k: v for k, v in fields.items() if k in ServerAccess.model_fields}
        )
        info = asyncio.run(_trainer_info(address, Credentials.load(access, default_secrets())))
    except (PlauditError, ValueError) as error:
        found = error.message if isinstance(error, PlauditError) else str(error)
        return Check(name, where_away, found, _START_TRAINER)
    devices = ", ".join(f"{d.name} {d.memory_bytes / 1024**3:.0f} GiB" for d in info.devices) or "CPU only"
    return _serving_trainer(name, info.trainer_version, f"{devices}, {info.max_concurrent_runs} runs at once")


def _serving_trainer(name: str, version: str, what: str) -> Check:
    found = f"version {version}, {what}"
    if version != __version__:
        return Check(name, State.WARN, found, f"this command has version {__version__}; install the same")
    return Check(name, State.OK, found)


async def _trainer_info(address: str, credentials: Credentials) -> trainer_service_pb2.GetTrainerInfoResponse:
    secured = credentials.open_channel(Endpoint(f"dns:{address}", address, is_loopback(address)))
    async with secured.channel:
        try:
            return await TrainerServiceStub(secured.channel).GetTrainerInfo(
                trainer_service_pb2.GetTrainerInfoRequest(), timeout=_SECONDS, metadata=secured.metadata
            )
        except grpc.aio.AioRpcError as failure:
            raise error_from_rpc(failure, target=address) from None
