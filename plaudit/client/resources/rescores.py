"""Rescores: stored completions of a job, scored again."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking, blocking_iterator
from plaudit.client._wire import Wire
from plaudit.errors import DeadlineExceededError
from plaudit.gateway.v1 import rescore_service_pb2 as pb
from plaudit.gateway.v1.rescore_service_pb2_grpc import RescoreServiceStub

_POLL_SECONDS: Final = 0.5


class AsyncRescores:
    """`client.rescores` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        self._stub = RescoreServiceStub(wire.channel)
        self._wire = wire

    async def create(
        self,
        job_id: str,
        *,
        rewards: Sequence[Mapping[str, Any]] = (),
        from_step: int = 0,
        to_step: int = 0,
        request_id: str | None = None,
    ) -> models.Rescore:
        """Queues a rescore of the job's stored completions, and returns it; the gateway runs it.

        A reward is as in `training_jobs.create`; none at all: those of the job. Steps 0: the first, and the
        newest, that are stored. `request_id` (default: a fresh UUID) makes a repetition return the same
        rescore; a lost answer is repeated by itself. Raises InvalidArgumentError with every wrong field at
        once.
        """
        request = _convert.rescore_request(
            job_id, rewards, from_step, to_step, request_id or str(uuid.uuid4())
        )
        return _convert.rescore_from_proto(await self._wire.call(self._stub.CreateRescore, request))

    async def get(self, rescore_id: str) -> models.Rescore:
        """A rescore as it stands."""
        request = _convert.carry(pb.GetRescoreRequest, {"id": rescore_id})
        return _convert.rescore_from_proto(await self._wire.call(self._stub.GetRescore, request))

    async def list(self, job_id: str = "") -> AsyncIterator[models.Rescore]:
        """Rescores of a job ("": of all), newest first; pages are fetched as they are needed."""
        request = _convert.carry(pb.ListRescoresRequest, {"job_id": job_id, "page_size": 100})
        async for page in self._wire.pages(self._stub.ListRescores, request):
            for item in page.rescores:
                yield _convert.rescore_from_proto(item)

    async def cancel(self, rescore_id: str) -> models.Rescore:
        """Stops a rescore; what it has scored stays."""
        request = _convert.carry(pb.CancelRescoreRequest, {"id": rescore_id})
        return _convert.rescore_from_proto(await self._wire.call(self._stub.CancelRescore, request))

    async def results(self, rescore_id: str) -> AsyncIterator[models.RescoreResult]:
        """What was scored so far, old and new, oldest step first; pages are fetched as they are needed."""
        request = _convert.carry(pb.ListRescoreResultsRequest, {"id": rescore_id, "page_size": 100})
        async for page in self._wire.pages(self._stub.ListRescoreResults, request):
            for item in page.results:
                yield _convert.rescore_result_from_proto(item)

    async def wait(
        self,
        rescore_id: str,
        *,
        timeout: float | None = None,
        on_progress: Callable[[models.Rescore], object] = lambda rescore: None,
    ) -> models.Rescore:
        """Waits until the rescore is over, and returns it; `on_progress` is told how it stands meanwhile.

        Raises DeadlineExceededError (WAIT_TIMED_OUT) after `timeout` seconds.
        """
        give_up = None if timeout is None else time.monotonic() + timeout
        while True:
            rescore = await self.get(rescore_id)
            on_progress(rescore)
            if rescore.status.is_terminal:
                return rescore
            if give_up is not None and time.monotonic() > give_up:
                raise DeadlineExceededError(
                    f"after {timeout:g} s rescore {rescore_id} is {rescore.status}; wait on, or cancel it",
                    reason="WAIT_TIMED_OUT",
                )
            await self._wire.pause(_POLL_SECONDS)


class Rescores(Blocking[AsyncRescores]):
    """`client.rescores`."""

    create = blocking(AsyncRescores.create)
    get = blocking(AsyncRescores.get)
    list = blocking_iterator(AsyncRescores.list)
    cancel = blocking(AsyncRescores.cancel)
    results = blocking_iterator(AsyncRescores.results)
    wait = blocking(AsyncRescores.wait)
