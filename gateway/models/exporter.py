"""Has checkpoints exported by trainers, one after the other, and keeps what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import structlog

from gateway.jobs.journal import ExportProgress
from gateway.jobs.trainer_access import TrainerDoor, open_door
from gateway.jobs.trainer_client import TrainerClient
from gateway.models.model import Model, ModelStatus
from gateway.store import Store
from plaudit.errors import (
    DeadlineExceededError,
    PlauditError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 0.5
GIVE_UP_SECONDS: Final = 600.0
"""How long an export that was begun waits for a trainer that does not answer."""

_AWAY: Final = (UnavailableError, DeadlineExceededError, UnimplementedError)


class Exporter:
    """Speaks with the trainers at `addresses`, the one that trained a job first.

    What is under way stands in the store: a gateway that was killed goes on where it was, and a trainer that
    was killed is asked again.
    """

    def __init__(self, store: Store, addresses: Sequence[str], *, door: TrainerDoor = open_door) -> None:
        """`door` tells what it takes to be let in by a trainer."""
        self._store = store
        self._clients = {address: TrainerClient(address, door) for address in addresses}
        self._silent_since: dict[str, float] = {}
        self._wake = asyncio.Event()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Follows what is under way while the context is open. Exports on trainers go on after it."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            for client in self._clients.values():
                await client.close()

    async def begin(self, model: Model) -> None:
        """Asks for a model that is in the store. Raises UnavailableError (NO_TRAINER), or what a trainer
        answered, where nothing was begun.
        """
        try:
            await self._settle(model, await self._ask(model))
        except ResourceExhaustedError as busy:
            await self._note(model, f"waits for another export: {busy.message}")
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                async with self._store.snapshot() as session:
                    models = await session.models.exporting()
                for model in models:
                    await self._follow(model)
            except Exception:
                # A full disk or a bug: the other models, and the next try, must not suffer.
                log.exception("unexpected error while exporting models")
                models = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS if models else None):
                    await self._wake.wait()

    async def _follow(self, model: Model) -> None:
        now = asyncio.get_running_loop().time()
        try:
            progress = await self._ask(model)
        except ResourceExhaustedError as busy:
            await self._note(model, f"waits for another export: {busy.message}")
        except UnavailableError as error:
            if now - self._silent_since.setdefault(model.id, now) < GIVE_UP_SECONDS:
                await self._note(model, error.message)
                return
            await self._give_up(model, error.message)
        except PlauditError as error:
            await self._give_up(model, f"the trainer refused it: {error.message}")
        else:
            self._silent_since.pop(model.id, None)
            await self._settle(model, progress)

    async def _ask(self, model: Model) -> ExportProgress:
        spec_json, addresses = await self._plan(model)
        problems = []
        for address in addresses:
            try:
                return await self._clients[address].export_checkpoint(model, spec_json)
            except _AWAY as error:
                problems.append(f"{address} ({error.message})")
        raise UnavailableError(
            f"no trainer can export it: {', '.join(problems) or 'none is registered'}; start one that "
            "reaches the artifact root, as `plaudit up` does",
            reason="NO_TRAINER",
        )

    async def _plan(self, model: Model) -> tuple[str, list[str]]:
        """With which spec the checkpoint was trained, and the trainers to ask, the best first."""
        async with self._store.snapshot() as session:
            record = await session.jobs.find(model.job_id)
            assert record is not None, "a model goes with its job"
            run = await session.runs.of_attempt(record.key, model.attempt)
            assert run is not None, "a checkpoint is a run's"
            trainer = await session.trainers.find(run.trainer_id)
        own = trainer.address if trainer is not None else ""
        return run.spec_json, sorted(self._clients, key=lambda address: address != own)

    async def _settle(self, model: Model, progress: ExportProgress) -> None:
        if progress.error is not None:
            await self._give_up(model, progress.error.message)
        elif progress.model is None:
            await self._note(model, progress.detail)
        else:
            done = progress.model
            log.info("a model was exported", model_id=model.id, uri=done.uri)
            await self._save(
                replace(
                    model, status=ModelStatus.AVAILABLE, status_detail="", kind=done.kind, files=done.files
                )
            )

    async def _note(self, model: Model, detail: str) -> None:
        if detail != model.status_detail:
            await self._save(replace(model, status_detail=detail))

    async def _give_up(self, model: Model, why: str) -> None:
        log.warning("a model was not exported", model_id=model.id, why=why)
        self._silent_since.pop(model.id, None)
        await self._save(replace(model, status=ModelStatus.UNAVAILABLE, status_detail=why))

    async def _save(self, model: Model) -> None:
        async with self._store.transaction() as session:
            await session.models.save(model)
