"""The environment that runs with `use_unsloth` are started in, and whether it can be used.

unsloth pins other versions of torch, transformers and trl than runs without it, so that it has an
environment of its own, with plaudit[trainer] in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from trainer_service.devices import Device

log = structlog.get_logger(__name__)

FIELD: Final = "hyperparameters.use_unsloth"
CHECK_SECONDS: Final = 180.0
"""Longest time that the environment is given to import unsloth, which compiles some of its kernels then."""

_LEAVE_OUT: Final = "or leave use_unsloth out to train with transformers"
_KILL_SECONDS: Final = 10.0
_SHOWN_CHARACTERS: Final = 300
_CHECK: Final = """
import json
from importlib.metadata import version
import unsloth
import trainer_service.training
names = ("plaudit", "unsloth", "trl", "transformers", "torch")
print(json.dumps({name: version(name) for name in names}))
"""
"""What the environment is asked: to import unsloth, first as it wants to be, and to say what it has."""


class UnslothEnvironment:
    """The environment of `interpreter`, None where the operator has set none. Used from one event loop."""

    def __init__(
        self,
        interpreter: Path | None,
        devices: Sequence[Device],
        *,
        trl_version: str | None = None,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        """`trl_version` is what runs are written for; None: the one that is installed here."""
        self._interpreter = interpreter
        self._devices = devices
        self._trl_version = trl_version
        self._check_seconds = check_seconds
        self._checking = asyncio.Lock()
        self._is_good = False

    async def obstacle(self) -> str:
        """Why no run can use it, with the way out; "" where one can. Runs it once; what fails is tried anew.

        Takes at most `check_seconds`, and the time to end what takes longer.
        """
        if self._interpreter is None:
            return (
                "true needs an environment with unsloth, and this trainer has none; make one with unsloth "
                "and plaudit[trainer], and set unsloth_python of the trainer to its interpreter, "
                f"{_LEAVE_OUT}"
            )
        if not self._devices:
            return f"true needs a GPU, and this trainer has none; use one that has, {_LEAVE_OUT}"
        async with self._checking:
            if self._is_good:
                return ""
            problem = await self._look(self._interpreter)
            self._is_good = not problem
        return f"{problem}; mend it, {_LEAVE_OUT}" if problem else ""

    async def _look(self, interpreter: Path) -> str:
        log.info("the environment with unsloth is tried", interpreter=str(interpreter))
        try:
            process = await asyncio.create_subprocess_exec(
                interpreter,
                "-c",
                _CHECK,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            return f"unsloth_python {interpreter} cannot be run: {error.strerror}"
        try:
            output, trouble = await asyncio.wait_for(process.communicate(), self._check_seconds)
        except TimeoutError:
            return f"{interpreter} did not import unsloth within {self._check_seconds:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await asyncio.wait_for(process.wait(), _KILL_SECONDS)
        if process.returncode != 0:
            said = trouble.decode("utf-8", "replace").strip().splitlines()
            why = said[-1][:_SHOWN_CHARACTERS] if said else f"status {process.returncode}"
            return f"unsloth cannot be imported by {interpreter}: {why}"
        return self._mismatch(interpreter, output)

    def _mismatch(self, interpreter: Path, output: bytes) -> str:
        # Libraries print while they are imported.
        lines = output.decode("utf-8", "replace").strip().splitlines() or [""]
        try:
            versions = json.loads(lines[-1])
            named = {name: str(versions[name]) for name in ("plaudit", "unsloth", "trl")}
        except (ValueError, TypeError, KeyError):
            return f"{interpreter} does not say what it has installed"
        wanted = {"trl": self._trl_version or version("trl"), "plaudit": version("plaudit")}
        for name, ours in wanted.items():
            if _release(named[name]) != _release(ours):
                return (
                    f"{interpreter} has {name} {named[name]} beside unsloth {named['unsloth']}, and runs of "
                    f"this trainer are written for {name} {'.'.join(_release(ours))}"
                )
        return ""


def _release(text: str) -> list[str]:
    return text.split(".")[:2]
