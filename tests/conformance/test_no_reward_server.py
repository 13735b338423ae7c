"""What the suite says of an address where no reward server answers: what is there, and what to do."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
import trustme
from grpc_reflection.v1alpha import reflection

from plaudit.errors import UnavailableError
from reward_service.conformance import Settings, Status, Target, run_suite

PATIENCE = 0.5


@asynccontextmanager
async def listening(answer: bytes, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Something that reads, and says `answer`; nothing where it is empty."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1024):
            writer.write(answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("rewards.example").configure_cert(context)
    return context


async def told(port: int, **secured: object) -> str:
    """Why the suite gave up on a port."""
    target = Target(f"127.0.0.1:{port}", **secured)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError) as error:
        await run_suite(Settings(target, timeout=PATIENCE))
    head, _, found = error.value.message.partition(" s: ")
    assert head == f"127.0.0.1:{port} does not answer as a gRPC server within {PATIENCE:g}"
    return found


async def test_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert (await told(free.getsockname()[1])).startswith("nothing listens there (connection refused)")


async def test_a_web_server() -> None:
    async with listening(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n") as port:
        found = await told(port)
    assert found.startswith('an HTTP server answers there ("HTTP/1.1 404 Not Found"), and no gRPC server')


async def test_something_else(context: ssl.SSLContext) -> None:
    async with listening(b"220 mail.example ESMTP\x1b[2J\r\n") as port:
        found = await told(port)
    assert found.startswith('what answers there is no gRPC server: it said "220 mail.example ESMTP\\u001b[2J')
    async with listening(b"") as port:
        assert "says nothing that gRPC or HTTP would" in await told(port)


async def test_tls_where_plain_text_was_meant_and_the_other_way_round(context: ssl.SSLContext) -> None:
    async with listening(b"", context) as port:
        assert (await told(port)).startswith("it speaks TLS; give --tls, or --ca-file")
    async with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert await told(port, tls=True) == "it speaks no TLS; leave --tls and the certificates out"


async def test_a_certificate_of_somebody_else_and_one_of_a_web_server(
    authority: trustme.CA, context: ssl.SSLContext, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    async with listening(b"", context) as port:
        assert (await told(port, tls=True)).startswith("its certificate is not taken (")
        assert "--server-name" in await told(port, ca_file=ca_file)
        found = await told(port, ca_file=ca_file, server_name="rewards.example")
    assert found.startswith("it speaks TLS without HTTP/2, so that it is no gRPC server")


async def test_a_grpc_server_without_rewards() -> None:
    server = grpc.aio.server()
    reflection.enable_server_reflection(["shop.v1.Orders"], server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        report = await run_suite(Settings(Target(f"127.0.0.1:{port}"), timeout=5.0, rules=["R01", "R09"]))
    finally:
        await server.stop(0)
    first, second = report.verdicts
    assert first.status is Status.FAIL
    assert "what answers there has no GetServerInfo of plaudit.reward.v1.RewardService" in first.text
    assert 'it lists "shop.v1.Orders"' in first.text
    assert second.status is Status.SKIPPED
