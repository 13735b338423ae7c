"""The gateway keeps watching: each replica as it was found, when, and what of it changed under a job."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from edges import DescribedServer, Edges, described_server, open_edges, until
from grpc_health.v1 import health_pb2, health_pb2_grpc
from job_fixtures import GOOD, to_message
from secured import half, kit_server

from gateway.events import LogLine
from gateway.rewards import Registration, ReplicaHealth, ReplicaState, changes, replicas
from plaudit.gateway.v1 import training_job_service_pb2 as jobs_pb
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc


def described(version: str = "1", *rewards: pb.Reward, **fields: Any) -> pb.GetServerInfoResponse:
    return pb.GetServerInfoResponse(
        server_name="math",
        server_version=version,
        **{"min_protocol_version": 1, "max_protocol_version": 1, **fields},
        rewards=rewards or [pb.Reward(name="exact")],
    )


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that takes connections and never says a word."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=take, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in taken:
            connection.close()


class Health(health_pb2_grpc.HealthServicer):
    """Answers as told; None: never."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:
        if self.answer is None:
            await asyncio.sleep(60)
        if self.answer == "NOT_FOUND" and request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        status = "NOT_SERVING" if self.answer == "NOT_FOUND" else self.answer
        return health_pb2.HealthCheckResponse(status=status)


@asynccontextmanager
async def server_with_health(answer: str | None) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pb_grpc.add_RewardServiceServicer_to_server(DescribedServer(described()), server)
    health_pb2_grpc.add_HealthServicer_to_server(Health(answer), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def registered(edges: Edges, *addresses: str) -> tuple[ReplicaHealth, ...]:
    live = await edges.gateway.reward_servers.create("judge", Registration(addresses=addresses))
    return live.replicas


async def newest(edges: Edges) -> ReplicaHealth:
    return (await edges.gateway.reward_servers.get("judge")).replicas[0]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def test_a_replica_is_shown_as_it_was_found_and_since_when(tmp_path: Path) -> None:
    port = free_port()
    async with open_edges(tmp_path) as edges:
        began = datetime.now(UTC)
        (down,) = await registered(edges, f"127.0.0.1:{port}")
        assert (down.state, down.latency_seconds, down.server_version) == (ReplicaState.UNREACHABLE, None, "")
        assert "cannot be reached" in down.reason
        assert began <= down.since == down.checked_at <= datetime.now(UTC)
        still = await newest(edges)
        assert (still.since, still.state) == (down.since, down.state)
        assert still.checked_at > down.checked_at
        async with kit_server(port=port):
            up = await newest(edges)
            assert (up.state, up.reason, up.server_version) == (ReplicaState.SERVING, "", "judge 1")
            assert up.since == up.checked_at > still.checked_at
            assert up.latency_seconds is not None
        gone = await newest(edges)
        assert gone.state is ReplicaState.UNREACHABLE
        assert gone.since > up.since


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("NOT_SERVING", "its health is NOT_SERVING (grpc.health.v1)"),
        ("NOT_FOUND", "its health is NOT_SERVING (grpc.health.v1)"),
        (None, "its health did not answer within 1 s"),
    ],
)
async def test_health_wins_over_a_description(tmp_path: Path, answer: str | None, told: str) -> None:
    async with open_edges(tmp_path) as edges, server_with_health(answer) as address:
        (replica,) = await registered(edges, address)
        assert replica.state is ReplicaState.NOT_SERVING
        assert told in replica.reason
        assert replica.server_version == "math 1"


async def test_a_server_without_health_serves_where_it_describes_itself(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as edges, described_server(DescribedServer(described())) as address:
        (replica,) = await registered(edges, address)
        assert replica.state is ReplicaState.SERVING


async def test_a_black_hole_ends_in_time_beside_a_replica_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "DEADLINE_SECONDS", 2.0)
    with black_hole() as silent:
        async with open_edges(tmp_path) as edges, kit_server() as address:
            registration = Registration(addresses=(silent, address))
            live = await edges.gateway.reward_servers.create("judge", registration)
    assert [r.state for r in live.replicas] == [ReplicaState.UNREACHABLE, ReplicaState.SERVING]
    assert live.replicas[0].reason == f"{silent} did not answer within 2 s"
    assert live.description.reachable


async def test_every_server_is_asked_again_by_itself_by_one_task(tmp_path: Path) -> None:
    servers = [DescribedServer(described()) for _ in range(3)]
    async with (
        open_edges(tmp_path, check_seconds=0.02) as edges,
        described_server(servers[0]) as first,
        described_server(servers[1]) as second,
        described_server(servers[2]) as third,
    ):
        await registered(edges, first, second)
        await edges.gateway.reward_servers.create("other", Registration(addresses=(third,)))
        await until(lambda: all(server.calls >= 5 for server in servers))
        # A round asks every replica once.
        assert abs(servers[0].calls - servers[1].calls) <= 1
        await edges.gateway.reward_servers.delete("other")
        calls = servers[2].calls
        await until(lambda: servers[0].calls >= servers[1].calls >= 20)
        assert servers[2].calls <= calls + 1


async def test_many_who_ask_at_once_share_one_question(tmp_path: Path) -> None:
    server = DescribedServer(described(), delay=0.3)
    async with open_edges(tmp_path) as edges, described_server(server) as address:
        await registered(edges, address)
        before = server.calls
        shown = await asyncio.gather(*(edges.http.get("/v1/reward_servers") for _ in range(30)))
        assert {answer.json()["data"][0]["reachable"] for answer in shown} == {True}
        assert server.calls - before < 15


async def test_replicas_that_differ_are_told(tmp_path: Path) -> None:
    async with (
        open_edges(tmp_path) as edges,
        kit_server(version="1") as first,
        kit_server(version="2") as second,
    ):
        await registered(edges, first, second)
        shown = (await edges.http.get("/v1/reward_servers/judge")).json()
        assert shown["warnings"] == [
            f"its replicas describe themselves differently: {first} is judge 1, {second} is judge 2"
        ]


async def log_lines(edges: Edges, job_id: str) -> list[LogLine]:
    async with edges.store.snapshot() as session:
        events = await session.events.after(0, job_id=job_id, limit=100)
    return [event.payload for event in events if isinstance(event.payload, LogLine)]


async def told(edges: Edges, job_id: str, count: int) -> list[LogLine]:
    """The lines of a job's log, once there are so many."""
    for _ in range(3000):
        lines = await log_lines(edges, job_id)
        if len(lines) >= count:
            return lines
        await asyncio.sleep(0.01)
    raise AssertionError(f"{count} lines did not come within 30 s")


async def started_job(edges: Edges, name: str, *, attempt: int) -> str:
    spec = {**GOOD, "output_name": name, "rewards": [{"server": "judge", "reward": "exact"}]}
    request = jobs_pb.CreateTrainingJobRequest(spec=to_message(spec))
    job_id = (await edges.jobs.CreateTrainingJob(request)).id
    async with edges.store.transaction() as session:
        await session.jobs._connection.execute("UPDATE jobs SET attempt = ? WHERE id = ?", (attempt, job_id))
    return job_id


async def test_a_change_in_mid_run_is_an_event_of_each_job_that_uses_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = DescribedServer(described("1", pb.Reward(name="exact"), pb.Reward(name="old")))
    async with described_server(server) as address:
        async with open_edges(tmp_path, check_seconds=0.02) as edges:
            await edges.gateway.datasets.start()
            await registered(edges, address)
            running = await started_job(edges, "a", attempt=1)
            queued = await started_job(edges, "b", attempt=0)
            calls = server.calls
            await until(lambda: server.calls > calls + 3)
            assert await log_lines(edges, running) == []
            server.answer = described("2", pb.Reward(name="exact", max_value=1.0), pb.Reward(name="new"))
            lines = await told(edges, running, 1)
            assert [line.level for line in lines] == ["warning"]
            assert lines[0].message == (
                f"reward server judge changed: {address} is math 2, was math 1, no longer offers old, now "
                "offers new, describes otherwise exact; scores from here on may mean something else"
            )
            assert json.loads(lines[0].fields_json) == {
                "reward_server": "judge",
                "replicas": {address: {"before": "math 1", "now": "math 2"}},
            }
            assert await log_lines(edges, queued) == []
            # One that changes at every question floods nobody: the next is told after a while, as one.
            for version in ("3", "4", "5"):
                server.answer = described(version)
                calls = server.calls
                await until(lambda: server.calls > calls + 1)  # noqa: B023  # awaited within the turn
            assert len(await log_lines(edges, running)) == 1
            monkeypatch.setattr(changes, "TOLD_EVERY_SECONDS", 0.0)
            lines = await told(edges, running, 2)
            assert "is math 5, was math 2" in lines[1].message
        # What changed while the gateway was away is told when it is back.
        server.answer = described("6")
        async with open_edges(tmp_path) as edges:
            lines = await told(edges, running, 3)
            assert "is math 6, was math 5" in lines[2].message


async def test_a_kit_server_that_drains_does_not_serve(tmp_path: Path) -> None:
    from reward_service import RewardServer

    server = RewardServer([half()], name="judge", version="1")
    port = await server.start("127.0.0.1:0")
    async with open_edges(tmp_path) as edges:
        (up,) = await registered(edges, f"127.0.0.1:{port}")
        assert up.state is ReplicaState.SERVING
        assert server._grpc is not None
        await server._grpc.drain()
        drains = await newest(edges)
        assert drains.state is ReplicaState.NOT_SERVING
        assert "it drains, or is not ready" in drains.reason
        live = await edges.gateway.reward_servers.get("judge")
        assert live.description.reachable, "what it offers is known all the same"
        await server.stop(0.0)
