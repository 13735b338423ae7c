"""Reads datasets of the Hugging Face hub, by a process that does it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gateway.datasets import hub_process
from gateway.datasets.faults import ending
from gateway.datasets.hub_process import UNREACHABLE, HubHeader, HubRequest
from plaudit.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from plaudit.service import Secrets
from plaudit.types.dataset_sources import DatasetSource

IDLE_SECONDS: Final = 120.0
"""Longest wait for the next bytes, the start of the process included."""

_CHUNK_BYTES: Final = 256 * 1024
_HEADER_BYTES: Final = 1024 * 1024
_TOLD_BYTES: Final = 4096


class HubDataset:
    """A dataset of the hub that is being read."""

    def __init__(self, process: asyncio.subprocess.Process, header: HubHeader, stderr: Path) -> None:
        self.header = header
        self._process = process
        self._stderr = stderr

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its rows as JSONL. Raises as `HubReader.read`."""
        assert self._process.stdout is not None
        while chunk := await _in_time(self._process.stdout.read(_CHUNK_BYTES)):
            yield chunk
        await _check_end(self._process, self._stderr)


class HubReader:
    """Starts the processes; the token of a dataset is read from `secrets` by its name."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    @asynccontextmanager
    async def read(self, source: DatasetSource, *, limit: int | None = None) -> AsyncIterator[HubDataset]:
        """Reads the dataset until the context ends; at most `limit` rows.

        Raises InvalidArgumentError (huggingface_dataset: what library or hub say), DeadlineExceededError
        where nothing comes any more, UnavailableError (HUB_UNREACHABLE), FailedPreconditionError
        (HUB_LIBRARY_MISSING; SECRET_MISSING, SECRET_UNUSABLE).
        """
        if find_spec("datasets") is None:
            raise FailedPreconditionError(
                "datasets of the Hugging Face hub need the package datasets where the gateway runs: pip "
                "install 'plaudit[hub]'",
                reason="HUB_LIBRARY_MISSING",
            )
        config = source.huggingface_config
        request = HubRequest(
            dataset=source.huggingface_dataset or "",
            config_name=config.config_name,
            split=config.split,
            column_mapping=config.column_mapping,
            limit=limit,
        )
        token = self._secrets.token(config.token) if config.token else ""
        # A folder of its own: a folder of that name beside the gateway is no dataset of the hub, and nothing
        # is left behind.
        with tempfile.TemporaryDirectory(prefix="plaudit-hub-") as folder:
            stderr = Path(folder) / "stderr.txt"
            work = Path(folder) / "empty"
            work.mkdir()
            with stderr.open("wb") as told:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    hub_process.__file__,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=told,
                    limit=_HEADER_BYTES,
                    cwd=work,
                    env=_environment(folder, token),
                )
            try:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(json.dumps(asdict(request)).encode())
                process.stdin.close()
                line = await _in_time(process.stdout.readline())
                if not line:
                    await _check_end(process, stderr)
                yield HubDataset(process, HubHeader(**json.loads(line)), stderr)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def _environment(folder: str, token: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PLAUDIT_")}
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        inherited.pop(name, None)
    return {
        **inherited,
        "HF_HOME": folder,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONUTF8": "1",
        **({"HF_TOKEN": token} if token else {}),
    }


async def _in_time(reading: Awaitable[bytes]) -> bytes:
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return await reading
    except TimeoutError:
        raise DeadlineExceededError(
            f"nothing came from the hub for {IDLE_SECONDS:g} s; try again, or see whether the gateway "
            "reaches it"
        ) from None
    except ValueError:
        raise InvalidArgumentError.of(
            "huggingface_dataset", "has more columns than can be read; connect a smaller one"
        ) from None


async def _check_end(process: asyncio.subprocess.Process, stderr: Path) -> None:
    """Raises what the process says went wrong, where something did."""
    status = await process.wait()
    if status == 0:
        return
    with stderr.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TOLD_BYTES))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    # What a crash leaves on stderr is not for people.
    why = lines[-1] if lines and status > 0 else f"its reader {ending(status)}"
    if status == UNREACHABLE:
        raise UnavailableError(f"the hub cannot be reached: {why}", reason="HUB_UNREACHABLE")
    raise InvalidArgumentError.of("huggingface_dataset", f"cannot be read: {why}")
