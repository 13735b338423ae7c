"""Descriptions that lie, or mean harm: bounded, told, and never the end of the gateway."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from edges import DescribedServer, described_server, open_edges

from gateway.jobs.ports import ServerDescription
from gateway.rewards import Registration
from plaudit.reward.v1 import reward_service_pb2 as pb


def described(*rewards: pb.Reward) -> pb.GetServerInfoResponse:
    return pb.GetServerInfoResponse(
        server_name="liar", min_protocol_version=1, max_protocol_version=1, rewards=rewards
    )


def schema(text: str) -> pb.Reward:
    return pb.Reward(name="odd", config_schema_json=text)


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[str]:
    """A server whose GetServerInfo sends these bytes."""

    async def get(request: Any, context: Any) -> bytes:
        return answer

    server = grpc.aio.server()
    handlers = {"GetServerInfo": grpc.unary_unary_rpc_method_handler(get)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("plaudit.reward.v1.RewardService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def shown(folder: Path, address: str) -> tuple[ServerDescription, dict[str, Any]]:
    """The server as the domain and as REST has it, from a gateway that still answers afterwards."""
    async with open_edges(folder) as edges:
        live = await edges.gateway.reward_servers.create("liar", Registration(addresses=(address,)))
        answer = await edges.http.get("/v1/reward_servers")
        assert answer.status_code == 200
        return live.description, json.loads(answer.text, parse_constant=pytest.fail)["data"][0]


async def test_what_is_odd_is_told_to_everyone_and_offered_to_nobody(tmp_path: Path) -> None:
    rewards = [
        schema('{"a":' * 5000 + "1" + "}" * 5000),
        pb.Reward(name="empty", min_value=math.nan, max_value=-math.inf),
        *(pb.Reward(name=f"r{n}") for n in range(5000)),
        pb.Reward(name="r7"),
        pb.Reward(name="\x1b[31mred"),
    ]
    async with described_server(DescribedServer(described(*rewards))) as address:
        description, rest = await shown(tmp_path, address)
    assert description.reachable
    assert len(rest["rewards"]) == 256
    assert [reward["config_schema"] for reward in rest["rewards"][:3]] == [{}, None, None]
    empty = rest["rewards"][1]
    assert (empty["min_value"], empty["max_value"]) == (None, None)
    assert "no value lies in its range, nan to -inf" in empty["problem"]
    assert len(rest["warnings"]) == 5
    assert "\x1b" not in "".join(rest["warnings"])


async def test_a_description_of_ten_megabytes_is_not_read(tmp_path: Path) -> None:
    async with described_server(DescribedServer(described(schema(" " * 10_000_000)))) as address:
        description, rest = await shown(tmp_path, address)
    assert not description.reachable
    assert rest["replicas"][0]["state"] == "not_serving"
    assert "a description of more than 4,194,304 bytes; shorten" in description.unreachable_reason


async def test_a_web_server_is_told_as_such(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        description, rest = await shown(tmp_path, f"127.0.0.1:{port}")
    assert not description.reachable
    assert 'an HTTP server answers there ("HTTP/1.1 400 Bad Request")' in description.unreachable_reason
    assert rest["replicas"][0]["state"] == "not_serving"


@pytest.mark.parametrize(
    "answer",
    [b"\x0a\x02\xff\xfe", b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f"],
    ids=["no UTF-8", "junk", "cut"],
)
async def test_bytes_that_are_no_description_are_told(tmp_path: Path, answer: bytes) -> None:
    async with raw_server(answer) as address:
        description, rest = await shown(tmp_path, address)
    assert not description.reachable
    assert address in description.unreachable_reason
    assert rest["replicas"][0]["state"] == "not_serving"
