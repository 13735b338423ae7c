"""The suite as a process, and servers as processes."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN_SECONDS = 90.0


@dataclass(frozen=True)
class Ran:
    """What a run of the command came to."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def ids(self, status: str, level: str = "") -> set[str]:
        """Rules that came out so."""
        rules = self.report["rules"]
        return {r["id"] for r in rules if r["status"] == status and level in ("", r["level"])}


PLAUDIT = (str(Path(sys.executable).with_name("plaudit")), "reward", "conformance")
MODULE = (sys.executable, "-m", "reward_service.conformance")


async def conformance(*arguments: str, command: tuple[str, ...] = MODULE) -> Ran:
    """The suite as a process, which is what `plaudit reward conformance` runs."""
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), RUN_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


@dataclass(frozen=True)
class Served:
    """A server that runs as a process."""

    address: str
    process: asyncio.subprocess.Process
