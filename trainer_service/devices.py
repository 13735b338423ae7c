"""Which accelerators this machine has, asked without loading a tensor library."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_QUERY: Final = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_TIMEOUT_SECONDS: Final = 10.0
_MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator."""

    name: str
    memory_bytes: int


async def find_devices() -> tuple[Device, ...]:
    """The NVIDIA devices that the driver's own tool lists; none where it is missing or does not answer."""
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
    return parse_devices(output.decode("utf-8", "replace"))


def parse_devices(listing: str) -> tuple[Device, ...]:
    """Reads lines of the form `NVIDIA H200, 143771`; the memory is in MiB. What is no device is left out."""
    devices = []
    for line in listing.splitlines():
        name, _, memory = line.rpartition(", ")
        if name and memory.strip().isdigit():
            devices.append(Device(name.strip(), int(memory) * _MEBIBYTE))
    return tuple(devices)
