"""A gateway's domain in this process, over a real store and scripted trainers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from scripted_trainer import ScriptedRun, ScriptedTrainer

from gateway.domain import Gateway
from gateway.events import Event
from gateway.server import open_gateway
from gateway.settings import GatewaySettings

FAST = {"poll_seconds": 0.05, "trainer_overdue_after_seconds": 0.3, "drain_seconds": 0.5}


def job_spec(**changes: Any) -> dict[str, Any]:
    return {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "rewards": [{"server": "builtin", "reward": "exact_answer"}],
        **changes,
    }


async def eventually(what: str, probe: Callable[[], Any | Awaitable[Any]], seconds: float = 20.0) -> Any:
    """The first true value of `probe`."""
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.01)


class Room:
    """A data directory in which a gateway is opened and closed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trainers: list[ScriptedTrainer] = []
        self._stack = AsyncExitStack()
        self.gateway: Gateway | None = None

    async def add_trainer(self, places: int = 1) -> ScriptedTrainer:
        trainer = ScriptedTrainer(places)
        await trainer.start()
        self.trainers.append(trainer)
        return trainer

    def settings(self, **changes: Any) -> GatewaySettings:
        return GatewaySettings.load(
            data_dir=self.folder,
            grpc_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            trainers=[trainer.address for trainer in self.trainers],
            # Nothing listens there: what a reward server offers is not the matter here.
            reward_servers={"builtin": ["127.0.0.1:1"]},
            **{**FAST, **changes},
        )

    async def open(self, **changes: Any) -> Gateway:
        self.gateway = await self._stack.enter_async_context(open_gateway(self.settings(**changes)))
        return self.gateway

    async def close(self) -> None:
        await self._stack.aclose()
        self.gateway = None

    async def status(self, job_id: str) -> str:
        assert self.gateway is not None
        return str((await self.gateway.jobs.get(job_id)).status)

    async def wait_for_status(self, job_id: str, status: str) -> None:
        async def reached() -> bool:
            return await self.status(job_id) == status

        await eventually(f"{job_id} to be {status}", reached)

    async def events(self, job_id: str) -> list[Event]:
        """The events of a job that is over."""
        assert self.gateway is not None
        async with asyncio.timeout(10):
            return [event async for event in await self.gateway.events.watch(job_id)]


async def started_run(room: Room, **changes: Any) -> tuple[str, ScriptedRun]:
    """A new job, and its run once the first trainer has it."""
    assert room.gateway is not None
    job = await room.gateway.jobs.create(job_spec(**changes))
    return job.id, await run_of(room, job.id)


async def run_of(room: Room, job_id: str, attempt: int = 1, trainer: int = 0) -> ScriptedRun:
    """An attempt's run, once the trainer has it."""

    def started() -> ScriptedRun | None:
        runs = room.trainers[trainer].runs.values()
        return next((r for r in runs if (r.request.job_id, r.request.attempt) == (job_id, attempt)), None)

    found = await eventually(f"attempt {attempt}", started)
    assert isinstance(found, ScriptedRun)
    return found


async def shown(room: Room, job_id: str, name: str) -> Any:
    """A field of the job."""
    assert room.gateway is not None
    return getattr(await room.gateway.jobs.get(job_id), name)


async def reached(room: Room, job_id: str, step: int) -> bool:
    """Whether the job has come to a step."""
    return bool(await shown(room, job_id, "current_step") >= step)


async def told(room: Room, job_id: str, detail: str) -> bool:
    """Whether the job says that it waits for this."""
    return bool(await shown(room, job_id, "status_detail") == detail)
