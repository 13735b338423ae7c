"""Arguments that Python would take apart, or that name nothing, are refused before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from plaudit.client import AsyncClient, Client
from plaudit.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError


@pytest.fixture(scope="module")
def client() -> Any:
    with Client("127.0.0.1:1", retry_seconds=0) as made:
        yield made


JOB = {"base_model": "b", "dataset_id": "d", "output_name": "o"}
BOTH = {**JOB, "reward_source": "a", "reward_sources": "b"}


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("keys", lambda c: c.training_jobs.metrics("job_1", keys="loss")),
        ("kinds", lambda c: list(c.training_jobs.watch("job_1", kinds="alert"))),
        ("kinds", lambda c: next(c.training_jobs.watch_all(kinds="alert"))),
        ("until", lambda c: c.training_jobs.wait("job_1", until="paused")),
        ("until", lambda c: c.training_jobs.wait("job_1", until=["pausd"])),
        ("statuses", lambda c: list(c.training_jobs.list(statuses="queued"))),
        ("statuses", lambda c: list(c.training_jobs.list(statuses=["queud"]))),
        ("reward_sources", lambda c: c.training_jobs.create(**JOB, reward_sources="def reward(): pass")),
        ("reward_function_ids", lambda c: c.training_jobs.create(**JOB, reward_function_ids="mine")),
        ("reward_sources", lambda c: c.training_jobs.submit(BOTH)),
        ("rewards", lambda c: c.training_jobs.create(**JOB, rewards="mine")),
        ("rewards", lambda c: c.rescores.create("job_1", rewards="mine")),
        ("addresses", lambda c: c.reward_servers.create("mine", "127.0.0.1:1")),
        ("column_mapping", lambda c: c.datasets.connect("d", huggingface_dataset="a/b", column_mapping="x")),
    ],
)  # fmt: skip
def test_a_text_for_a_list_is_refused(client: Client, field: str, call: Callable[[Client], object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call(client)
    assert [violation.field for violation in caught.value.violations] == [field]
    assert "is refused" in caught.value.message or "must be" in caught.value.message


def test_statuses_may_be_texts(client: Client) -> None:
    with pytest.raises(UnavailableError):
        list(client.training_jobs.list(statuses=["queued"]))


@pytest.mark.parametrize("nothing", [None, ""])
def test_what_names_nothing_is_refused(client: Client, nothing: Any) -> None:
    jobs = client.training_jobs
    for call in (
        *(jobs.get, jobs.cancel, jobs.pause, jobs.resume, jobs.delete, jobs.metrics, jobs.wait),
        *(client.datasets.get, client.models.get, client.rescores.get, client.reward_servers.get),
        *(client.reward_functions.get, client.tokens.revoke, client.rescores.create, client.models.export),
        *(lambda n: list(jobs.watch(n)), lambda n: list(jobs.checkpoints(n))),
        *(lambda n: list(jobs.logs(n, follow=True)), lambda n: client.datasets.token_statistics(n, "m")),
    ):
        with pytest.raises(InvalidArgumentError, match="names nothing"):
            call(nothing)


def test_the_limit_of_rows_has_its_own_name(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^limit: -1 is refused"):
        list(client.datasets.rows("d", limit=-1))


def test_a_list_of_the_caller_is_left_as_it_is(client: Client) -> None:
    mine = {**JOB, "reward_source": "a", "reward_sources": ["b"]}
    with pytest.raises(UnavailableError):
        client.training_jobs.submit(mine)
    assert mine["reward_sources"] == ["b"]


async def test_a_closed_client_says_so(tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    client = Client("127.0.0.1:1")
    client.close()
    other = AsyncClient("127.0.0.1:1")
    await other.close()
    for call in (
        lambda: client.training_jobs.get("job_1"),
        lambda: list(client.training_jobs.watch("job_1")),
        lambda: list(client.datasets.list()),
        lambda: client.datasets.upload(tmp_path / "rows.jsonl"),
    ):
        with pytest.raises(FailedPreconditionError, match="closed") as caught:
            call()
        assert caught.value.reason == "CLIENT_CLOSED"
    with pytest.raises(FailedPreconditionError, match="closed"):
        await other.training_jobs.get("job_1")
    with pytest.raises(FailedPreconditionError, match="closed"):
        await other.datasets.upload(tmp_path / "rows.jsonl")


def test_a_time_beyond_all_years_is_refused(client: Client) -> None:
    beyond = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
    with pytest.raises(InvalidArgumentError, match="is no time of the years 1 to 9999") as caught:
        client.tokens.create("ci", "viewer", expires_at=beyond)
    assert [violation.field for violation in caught.value.violations] == ["expires_at"]


def test_half_a_character_is_refused_and_is_no_traceback(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.rescores.create("job_1", rewards=[{"server": "two/\udce0", "reward": "r"}])
    assert [violation.field for violation in caught.value.violations] == ["rewards"]
    assert "surrogate" in caught.value.message
