"""A thinned series out of a million points: how long the gateway takes, beside a plain SELECT."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx2
from harness import Figure, Spread, paired_ratio, progress

from gateway.server import STORE_FILE
from gateway_load.history import History, thin_by_hand, write_history
from gateway_load.service import cpu_seconds, gateway_process, serving_gateway, settings_of
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.rpc import open_channel

POINTS: Final = 1_000_000
GOAL_SECONDS: Final = 0.1

_KEYS: Final = ("reward_mean", "reward_std", "kl_div", "loss", "response_length_mean", "policy_entropy")
_MAX_POINTS: Final = 500
_REPEATS: Final = 8
_REQUESTS: Final = 12
"""In a repeat, of each kind."""


async def series_figures(folder: Path, scale: float) -> AsyncIterator[Figure]:
    """One key with all the points, and six that share them; each over gRPC and REST."""
    points = int(POINTS * scale)
    progress(f"writing two jobs of {points:,} points")
    settings = settings_of(folder)
    histories = {
        "one_key": await write_history(settings, _KEYS[:1], points),
        "six_keys": await write_history(settings, _KEYS, points // len(_KEYS)),
    }
    with serving_gateway(folder) as announced:
        channel = open_channel(announced["grpc_address"])
        try:
            async with httpx2.AsyncClient(base_url=f"http://{announced['http_address']}", timeout=60) as http:
                stub = TrainingJobServiceStub(channel)
                for name, history in histories.items():
                    store = settings.state_dir / STORE_FILE
                    async for figure in _figures(name, history, stub, http, store):
                        yield figure
        finally:
            await channel.close()


async def _figures(
    name: str, history: History, stub: TrainingJobServiceStub, http: httpx2.AsyncClient, store: Path
) -> AsyncIterator[Figure]:
    async def by_grpc() -> int:
        request = pb.GetTrainingJobMetricsRequest(
            id=history.job_id, keys=history.keys, max_points=_MAX_POINTS
        )
        return sum(len(row.values) for row in (await stub.GetTrainingJobMetrics(request)).metrics)

    async def by_rest() -> int:
        query = {"keys": ",".join(history.keys), "max_points": str(_MAX_POINTS)}
        answer = await http.get(f"/v1/training_jobs/{history.job_id}/metrics", params=query)
        return sum(len(row["values"]) for row in answer.raise_for_status().json()["metrics"])

    async def by_hand() -> int:
        return await asyncio.to_thread(thin_by_hand, store, history, _MAX_POINTS)

    progress(f"{name}: {_REPEATS} repeats")
    kept = {await by_grpc(), await by_rest(), await by_hand()}
    assert kept == {2 * (_MAX_POINTS // 2) * len(history.keys)}, kept
    seconds: dict[str, list[list[float]]] = {"grpc": [], "rest": []}
    cpu = dict.fromkeys(seconds, 0.0)
    gateway = gateway_process()
    rival = []
    for _ in range(_REPEATS):
        for wire, ask in (("grpc", by_grpc), ("rest", by_rest)):
            used = cpu_seconds(gateway)
            seconds[wire].append([await _timed(ask) for _ in range(_REQUESTS)])
            cpu[wire] += cpu_seconds(gateway) - used
        rival.append(await _timed(by_hand))
    for wire, repeats in seconds.items():
        every = [value for repeat in repeats for value in repeat]
        medians = [Spread.of(repeat).median for repeat in repeats]
        yield Figure(
            f"gateway/series/{name}/{wire}",
            _quantile(every, 0.95),
            "seconds, 95th percentile",
            goal=GOAL_SECONDS,
            ours=Spread.of(every).median,
            rival=Spread.of(rival).median,
            more={
                "requests": len(every),
                "points": history.steps * len(history.keys),
                "gateway_cpu_seconds": round(cpu[wire] / len(every), 4),
            },
        )
        ratio = paired_ratio(medians, rival)
        yield Figure(
            f"gateway/series/{name}/{wire}/against_select",
            ratio.median,
            "of the time that a plain SELECT of every point takes",
            ours=Spread.of(medians).median,
            rival=Spread.of(rival).median,
            spread=ratio,
        )


async def _timed(work: Callable[[], Awaitable[int]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]
