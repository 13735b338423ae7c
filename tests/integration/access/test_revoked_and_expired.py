"""A token that is revoked or expires ends what is open by it, and lets nothing in any more."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from access_room import Guarded, open_guarded
from edges import until

from gateway.access.tokens import TokenBook
from gateway.store import Store
from plaudit.gateway.v1 import dataset_service_pb2, training_job_service_pb2
from plaudit.types.roles import Role


def watch(guarded: Guarded, secret: str) -> grpc.aio.UnaryStreamCall:
    request = training_job_service_pb2.WatchEventsRequest()
    return guarded.edges.jobs.WatchEvents(request, metadata=guarded.metadata(secret), timeout=30)


async def test_revoking_ends_streams_of_that_token_at_once_and_no_others(guarded: Guarded) -> None:
    tokens = guarded.edges.gateway.access.tokens
    _, secret = await tokens.create("watcher", Role.VIEWER)
    mine, other = watch(guarded, secret), watch(guarded, guarded.secrets[Role.VIEWER])
    assert (await mine.read()).WhichOneof("event") == "bookmark"
    assert (await other.read()).WhichOneof("event") == "bookmark"
    header = guarded.header(secret)
    async with guarded.edges.http.stream("GET", "/v1/watch", headers=header) as sse:
        lines = sse.aiter_lines()
        assert sse.status_code == 200
        await anext(lines)
        await tokens.revoke("watcher")
        async with asyncio.timeout(10):
            assert all(not line.startswith("event: status") for line in [line async for line in lines])
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        while True:
            assert await mine.read() is not grpc.aio.EOF
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert 'the token "watcher" was revoked' in ended.value.details()
    assert (await other.read()).WhichOneof("event") == "bookmark"
    other.cancel()
    assert (await guarded.request("GET", "/v1/me", secret)).status_code == 401


async def test_revoking_ends_an_upload_under_way_and_stores_nothing(guarded: Guarded) -> None:
    tokens = guarded.edges.gateway.access.tokens
    _, secret = await tokens.create("uploader", Role.OPERATOR)
    upload = guarded.edges.datasets.UploadDataset(metadata=guarded.metadata(secret), timeout=30)
    header = dataset_service_pb2.UploadDatasetHeader(name="half", format="jsonl")
    await upload.write(dataset_service_pb2.UploadDatasetRequest(header=header))
    await upload.write(dataset_service_pb2.UploadDatasetRequest(chunk=b'{"prompt": "a"}\n'))
    calls = guarded.edges.gateway.access.calls
    await until(lambda: any(key.startswith("tok_") for key in calls._calls))
    await tokens.revoke("uploader")
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await upload
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    async with guarded.edges.store.snapshot() as session:
        assert await session.datasets.find("half") is None


async def test_who_revokes_its_own_token_is_told_that_it_is_done(guarded: Guarded) -> None:
    answer = await guarded.request("DELETE", "/v1/tokens/admin", Role.ADMIN)
    assert (answer.status_code, answer.json()["deleted"]) == (200, True)
    assert (await guarded.request("GET", "/v1/tokens", Role.ADMIN)).status_code == 401


async def test_a_token_that_expires_ends_its_streams_too(guarded: Guarded) -> None:
    tokens = guarded.edges.gateway.access.tokens
    soon = datetime.now(UTC) + timedelta(seconds=1.5)
    _, secret = await tokens.create("guest", Role.VIEWER, expires_at=soon)
    call = watch(guarded, secret)
    assert await call.read() is not grpc.aio.EOF
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        while True:
            assert await call.read() is not grpc.aio.EOF
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert datetime.now(UTC) >= soon
    answer = await guarded.request("GET", "/v1/me", secret)
    assert answer.status_code == 401
    assert 'the token "guest" expired' in answer.json()["error"]["message"]


async def test_a_token_that_was_made_on_the_machine_meanwhile_lets_in(
    guarded: Guarded, tmp_path: Path
) -> None:
    async with Store.open(tmp_path / "gateway.sqlite3") as elsewhere:
        _, secret = await TokenBook(elsewhere, on_revoked=print).create("rescue", Role.ADMIN)
    answer = await guarded.request("GET", "/v1/me", secret)
    assert (answer.status_code, answer.json()["name"]) == (200, "rescue")


async def test_tokens_survive_a_restart_and_their_last_use_is_kept_to_the_minute(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    async with open_guarded(tmp_path) as first:
        assert (await first.request("GET", "/v1/me", Role.VIEWER)).status_code == 200
    async with Store.open(tmp_path / "gateway.sqlite3") as store, store.snapshot() as session:
        used = {token.name: token.last_used_at for token in await session.tokens.list()}
        data = b"".join(path.read_bytes() for path in tmp_path.glob("gateway.sqlite3*"))
    assert used["admin"] is None
    last = used["viewer"]
    assert last is not None
    assert before <= last <= datetime.now(UTC)
    assert (last.second, last.microsecond) == (0, 0)
    for secret in first.secrets.values():
        assert secret.encode() not in data
