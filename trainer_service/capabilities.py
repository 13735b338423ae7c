"""What runs on this machine can do; found out once, when the service starts, without loading a library."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from trainer_service.devices import Device, find_devices
from trainer_service.sizing import Machine, host_memory_bytes

_FOUR_BITS: Final = ("torch", "transformers", "peft", "bitsandbytes")
"""What load_in_4bit is built on; it works on the CPU, too."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Accelerators that runs use, whether they can load in 4 bits, and the memory of the host in bytes."""

    devices: tuple[Device, ...]
    quantization: bool
    host_memory_bytes: int

    @property
    def machine(self) -> Machine:
        """What a run trains on: the first accelerator, or the host."""
        if self.devices:
            return Machine(self.devices[0].name, self.devices[0].memory_bytes, is_accelerator=True)
        return Machine("cpu", self.host_memory_bytes, is_accelerator=False)


async def find_capabilities() -> Capabilities:
    """Looks at this machine and at what is installed."""
    return Capabilities(
        devices=await find_devices(),
        quantization=all(find_spec(name) is not None for name in _FOUR_BITS),
        host_memory_bytes=await asyncio.to_thread(host_memory_bytes),
    )
