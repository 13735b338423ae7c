"""Which accelerators runs on this machine use, asked without loading a tensor library."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_QUERY: Final = ("--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")
_TIMEOUT_SECONDS: Final = 10.0
_MEBIBYTE: Final = 1024 * 1024
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_CPU_BUILD: Final = "+cpu"
"""Ends the version of a torch that was built without CUDA."""


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator. `uuid` is the driver's name for it."""

    uuid: str
    name: str
    memory_bytes: int


async def find_devices() -> tuple[Device, ...]:
    """The NVIDIA devices that runs can use, in the order in which they would: those that the driver's own
    tool lists, that CUDA_VISIBLE_DEVICES shows and that the installed torch can drive.
    """
    if not torch_drives_accelerators():
        return ()
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    process = await asyncio.create_subprocess_exec(
        tool,
        *_QUERY,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_SECONDS)
    except TimeoutError:
        log.warning("nvidia-smi does not answer; the trainer describes itself as one without accelerators")
        process.kill()
        return ()
    return visible_devices(parse_devices(output.decode("utf-8", "replace")), os.environ.get(_VISIBLE))


def torch_drives_accelerators() -> bool:
    """Whether torch is installed, in a build that has CUDA."""
    try:
        return not version("torch").endswith(_CPU_BUILD)
    except PackageNotFoundError:
        return False


def parse_devices(listing: str) -> tuple[Device, ...]:
    """Reads lines of the form `GPU-5a3f..., NVIDIA H200, 143771`; the memory is in MiB. What is no device is
    left out.
    """
    devices = []
    for line in listing.splitlines():
        uuid, _, rest = line.partition(", ")
        name, _, memory = rest.rpartition(", ")
        if name and memory.strip().isdigit():
            devices.append(Device(uuid.strip(), name.strip(), int(memory) * _MEBIBYTE))
    return tuple(devices)


def visible_devices(devices: Sequence[Device], visible: str | None) -> tuple[Device, ...]:
    """The devices that CUDA_VISIBLE_DEVICES shows, in its order: numbers or beginnings of UUIDs, up to the
    first that is no device. None: all of them.
    """
    if visible is None:
        return tuple(devices)
    shown: list[Device] = []
    for word in visible.split(","):
        device = _device(devices, word.strip())
        if device is None:
            break
        shown.append(device)
    return tuple(shown)


def _device(devices: Sequence[Device], word: str) -> Device | None:
    if word.isdigit():
        return devices[int(word)] if int(word) < len(devices) else None
    return next((device for device in devices if word and device.uuid.startswith(word)), None)
