"""`Client` and `AsyncClient` have the same resources, methods, parameters and words."""

from __future__ import annotations

import inspect
import pickle
import typing
from collections.abc import Callable
from dataclasses import fields

import pytest

from plaudit.client import AsyncClient, AsyncJob, Client, Job, models
from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.statuses import JobStatus

RESOURCES = (
    "training_jobs",
    "datasets",
    "reward_servers",
    "reward_functions",
    "rescores",
    "models",
    "tokens",
    "trainers",
)


def public(thing: object) -> dict[str, Callable[..., object]]:
    members = inspect.getmembers(thing, callable)
    return {name: member for name, member in members if not name.startswith("_")}


@pytest.fixture(scope="module")
def client() -> typing.Iterator[Client]:
    with Client("127.0.0.1:1") as made:
        yield made


async def test_both_clients_have_the_same_resources(client: Client) -> None:
    async with AsyncClient("127.0.0.1:1") as other:
        attributes = {name for name in vars(client) if not name.startswith("_")}
        assert (
            attributes
            == {name for name in vars(other) if not name.startswith("_")}
            == {*RESOURCES, "address"}
        )
        for name in RESOURCES:
            assert public(getattr(client, name)).keys() == public(getattr(other, name)).keys()
            assert "list" in public(getattr(client, name))


def assert_alike(sync: Callable[..., object], other: Callable[..., object]) -> None:
    here, there = inspect.signature(sync), inspect.signature(other)
    assert list(here.parameters.values()) == list(there.parameters.values())
    assert inspect.getdoc(sync) == inspect.getdoc(other)
    assert inspect.getdoc(sync), sync
    # What is awaited there is returned here, and what is an asynchronous iterator there is a plain one here.
    assert not inspect.iscoroutinefunction(sync)
    told = str(there.return_annotation).replace("AsyncIterator", "Iterator").replace("JobT", "Job")
    assert str(here.return_annotation) == told.replace("AsyncJob", "Job")
    assert inspect.iscoroutinefunction(other) != ("AsyncIterator" in str(there.return_annotation))


async def test_the_methods_are_alike(client: Client) -> None:
    async with AsyncClient("127.0.0.1:1") as other:
        for resource in RESOURCES:
            there = public(getattr(other, resource))
            for name, method in public(getattr(client, resource)).items():
                assert_alike(method, there[name])
    assert list(inspect.signature(Client).parameters.values()) == list(
        inspect.signature(AsyncClient).parameters.values()
    )


def test_jobs_of_both_are_alike() -> None:
    here, there = public(Job), public(AsyncJob)
    assert here.keys() == there.keys() >= {"wait", "cancel", "pause", "resume", "watch", "refresh"}
    for name in here:
        assert_alike(here[name], there[name])


def test_a_job_is_data_that_can_be_copied_without_its_connection() -> None:
    spec = TrainingJobSpec.model_construct(base_model="builtin:tiny")
    values = {field.name: None for field in fields(models.TrainingJob)}
    data = models.TrainingJob(
        **{**values, "id": "job_1", "spec": spec, "status": JobStatus.QUEUED, "metrics": {}}
    )
    job = Job._of(data, jobs=None)
    assert (job.id, job.status, job.spec) == ("job_1", JobStatus.QUEUED, spec)
    copied = pickle.loads(pickle.dumps(job))
    assert type(copied) is models.TrainingJob
    assert copied == data
