"""Jobs as `training_jobs` returns them: the data of `models.TrainingJob`, and what can be done with one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

from plaudit.client import models
from plaudit.types.statuses import JobStatus

if TYPE_CHECKING:
    from plaudit.client.resources.training_jobs import AsyncTrainingJobs, TrainingJobs


class _Handle(models.TrainingJob):
    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy that leaves the process is data: the connection does not go with it.
        return models.TrainingJob, tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def _of(cls, job: models.TrainingJob, jobs: object) -> Self:
        handle = cls(*(getattr(job, field.name) for field in fields(job)))
        object.__setattr__(handle, "_jobs", jobs)
        return handle


class Job(_Handle):
    """A training job as it stood when it was read, with `wait`, `cancel` and the like.

    It does not change by itself: each of them returns the job as it stands then.
    """

    __slots__ = ("_jobs",)
    _jobs: TrainingJobs

    def refresh(self) -> Job:
        """The job as it stands now."""
        return self._jobs.get(self.id)

    def wait(
        self,
        *,
        timeout: float | None = None,
        until: Collection[JobStatus] = (),
        on_progress: Callable[[models.TrainingJob], object] | None = None,
    ) -> Job:
        """As `training_jobs.wait`."""
        return self._jobs.wait(self.id, timeout=timeout, until=until, on_progress=on_progress)

    def watch(self, *, after_cursor: str = "") -> Iterator[models.JobEvent]:
        """As `training_jobs.watch`."""
        return self._jobs.watch(self.id, after_cursor=after_cursor)

    def pause(self) -> Job:
        """As `training_jobs.pause`."""
        return self._jobs.pause(self.id)

    def resume(self) -> Job:
        """As `training_jobs.resume`."""
        return self._jobs.resume(self.id)

    def cancel(self) -> Job:
        """As `training_jobs.cancel`."""
        return self._jobs.cancel(self.id)


class AsyncJob(_Handle):
    """A training job as it stood when it was read, with `wait`, `cancel` and the like.

    It does not change by itself: each of them returns the job as it stands then.
    """

    __slots__ = ("_jobs",)
    _jobs: AsyncTrainingJobs

    async def refresh(self) -> AsyncJob:
        """The job as it stands now."""
        return await self._jobs.get(self.id)

    async def wait(
        self,
        *,
        timeout: float | None = None,
        until: Collection[JobStatus] = (),
        on_progress: Callable[[models.TrainingJob], object] | None = None,
    ) -> AsyncJob:
        """As `training_jobs.wait`."""
        return await self._jobs.wait(self.id, timeout=timeout, until=until, on_progress=on_progress)

    def watch(self, *, after_cursor: str = "") -> AsyncIterator[models.JobEvent]:
        """As `training_jobs.watch`."""
        return self._jobs.watch(self.id, after_cursor=after_cursor)

    async def pause(self) -> AsyncJob:
        """As `training_jobs.pause`."""
        return await self._jobs.pause(self.id)

    async def resume(self) -> AsyncJob:
        """As `training_jobs.resume`."""
        return await self._jobs.resume(self.id)

    async def cancel(self) -> AsyncJob:
        """As `training_jobs.cancel`."""
        return await self._jobs.cancel(self.id)
