"""What trainers are asked before a job runs: whether it would fit, and how long its prompts are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.jobs.journal import CheckedRun, TokenCount
from gateway.jobs.trainer_access import TrainerDoor, open_door
from gateway.jobs.trainer_client import TrainerClient
from gateway.store.datasets import StoredDataset
from plaudit.errors import FieldViolation, PlauditError, UnavailableError, UnimplementedError
from plaudit.types.memory import MemoryEstimate
from plaudit.types.methods import Hyperparameters

_PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class AskedJob:
    """A job that is not queued yet, as far as trainers judge it. A dataset is None where it is not known,
    that of evaluations also where there are none.
    """

    base_model: str
    method: str
    hyperparameters: Hyperparameters
    dataset: StoredDataset | None = None
    eval_dataset: StoredDataset | None = None


@dataclass(frozen=True, slots=True)
class JobCheck:
    """What trainers say of a job that is not queued yet.

    `memory` is what it takes on the trainer that it fits best; None: `unknown_reason` says why it is not
    known before the run has loaded its model, "" where nobody was asked. `warnings` are for people.
    `violations` are why no trainer can take it.
    """

    memory: MemoryEstimate | None = None
    unknown_reason: str = ""
    warnings: tuple[str, ...] = ()
    violations: tuple[FieldViolation, ...] = ()


class JobChecks(Protocol):
    """Who can say whether a job would run."""

    async def check_job(self, asked: AskedJob) -> JobCheck:
        """Takes a bounded time, and never raises for trainers that are away."""


class NoTrainers:
    """For a gateway without trainers: nothing is known."""

    async def check_job(self, asked: AskedJob) -> JobCheck:
        """See JobChecks."""
        return JobCheck()


class TrainerQuestions:
    """Asks the trainers at `addresses`, in their order."""

    def __init__(self, addresses: Sequence[str], *, door: TrainerDoor = open_door) -> None:
        """`door` tells what it takes to be let in by a trainer."""
        self._clients = [TrainerClient(address, door) for address in addresses]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Ends all calls when the context ends."""
        try:
            yield
        finally:
            for client in self._clients:
                await client.close()

    async def check_job(self, asked: AskedJob) -> JobCheck:
        """See JobChecks. A job is refused where every trainer answers that it would fail there."""
        answers = await asyncio.gather(*(self._check(client, asked) for client in self._clients))
        told = {
            client.address: answer
            for client, answer in zip(self._clients, answers, strict=True)
            if isinstance(answer, CheckedRun)
        }
        if not told:
            return JobCheck(unknown_reason="; ".join(str(answer) for answer in answers))
        able = [answer for answer in told.values() if not answer.obstacles]
        best = max(able or told.values(), key=_room)
        if not able and len(told) == len(answers):
            return JobCheck(best.estimate, best.unknown_reason, violations=best.obstacles)
        return JobCheck(
            best.estimate,
            best.unknown_reason,
            tuple(best.warnings)
            + tuple(
                f"the job would fail on trainer {address}: {obstacle.field}: {obstacle.message}"
                for address, answer in told.items()
                for obstacle in answer.obstacles
            ),
        )

    async def count_tokens(
        self, base_model: str, dataset: StoredDataset, *, max_prompt_length: int, patience_seconds: float
    ) -> TokenCount:
        """What a trainer counts, or an unfinished count where it takes longer than `patience_seconds`.

        Raises UnavailableError (NO_TRAINER) where no trainer can count.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + patience_seconds
        while True:
            count = await self._count(base_model, dataset, max_prompt_length)
            if count.is_over or loop.time() > give_up:
                return count
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _check(self, client: TrainerClient, asked: AskedJob) -> CheckedRun | str:
        try:
            return await client.check_run(
                asked.base_model,
                asked.method,
                asked.hyperparameters,
                dataset_uri="" if asked.dataset is None else asked.dataset.uri,
                eval_dataset_uri="" if asked.eval_dataset is None else asked.eval_dataset.uri,
            )
        except UnimplementedError:
            return f"trainer {client.address} does not reckon"
        except PlauditError as error:
            return f"trainer {client.address} does not answer: {error.message}"

    async def _count(self, base_model: str, dataset: StoredDataset, max_prompt_length: int) -> TokenCount:
        problems = []
        for client in self._clients:
            try:
                return await client.count_tokens(base_model, dataset, max_prompt_length)
            except PlauditError as error:
                if error.reason == "COUNT_BUSY":
                    return TokenCount()
                problems.append(f"{client.address} ({error.message})")
        raise UnavailableError(
            f"no trainer can count: {', '.join(problems) or 'none is registered'}; start one that reaches "
            "the artifact root, as `plaudit up` does",
            reason="NO_TRAINER",
        )


def _room(answer: CheckedRun) -> int:
    return answer.estimate.available_bytes if answer.estimate else -1
