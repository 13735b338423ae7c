"""A gateway with stored completions, and reward servers made with the kit; all in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from gateway_room import eventually, job_spec

from gateway.domain import Gateway
from gateway.rescoring.rescore import Rescore, RescoreResult
from gateway.server import open_gateway
from gateway.settings import GatewaySettings
from gateway.store import Store
from gateway.store.completions import CompletionFile
from reward_service import Item, NotApplicable, RewardServer, reward

GROUP = 4
STEPS = 3
GROUPS = 200
"""Of 4: more than one chunk a step."""


def text_of(step: int, index: int) -> str:
    return f"<answer>{(step * 7 + index) % 5}</answer>"


def old_of(step: int, index: int) -> float | None:
    return None if index % 50 == 49 else float(index % 3)


def rows_of(step: int, groups: int = GROUPS) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "attempt": 1,
            "group_id": f"{step}-g{index // GROUP}",
            "completion_id": f"{step}-{index}",
            "prompt_text": f"<user>row {index // GROUP}<assistant>",
            "completion_text": text_of(step, index),
            "token_count": 3,
            "truncated": index % 4 == 3,
            "reward": old_of(step, index),
            "advantage": 0.5,
            "outcomes": json.dumps(
                [{"name": "old", "status": "scored", "value": old_of(step, index), "explanation": "then"}]
            ),
            "messages": json.dumps([{"role": "user", "content": f"row {index // GROUP}"}]),
            "columns": json.dumps({"answer": index // GROUP % 5}),
            "prefill": "",
            "raw_text": "",
        }
        for index in range(groups * GROUP)
    ]


class Rewards:
    """What the tests' reward server does; `gate` holds every answer back until it is set."""

    def __init__(self) -> None:
        self.seen: list[Item] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def server(self) -> RewardServer:
        @reward(description="1 where the tagged digit is the row's.", min_value=0, max_value=1,
                required_columns=["answer"])  # fmt: skip
        async def right(items: list[Item]) -> list[float]:
            self.seen += items
            await self.gate.wait()
            return [float(item.text == f"<answer>{item.columns['answer']}</answer>") for item in items]

        @reward(description="How far up in its group.", scope="group")
        async def rank(items: list[Item]) -> list[float]:
            return [float(n) / len(items) for n in range(len(items))]

        @reward(description="Fails for a fifth, does not apply to another.")
        async def patchy(item: Item) -> float | NotApplicable:
            index = int(item.completion.completion_id.split("-")[1])
            if index % 5 == 0:
                raise ValueError("no idea")
            return NotApplicable("odd one") if index % 5 == 1 else 0.5

        @reward(description="Fails always.")
        async def broken(item: Item) -> float:
            raise ValueError("no idea")

        return RewardServer([right, rank, patchy, broken], name="late")


class Room:
    """A data directory in which a gateway is opened and closed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rewards = Rewards()
        self.addresses = ["127.0.0.1:1"]
        self._stack = AsyncExitStack()
        self._server: RewardServer | None = None
        self.gateway: Gateway

    async def serve(self) -> None:
        self._server = self.rewards.server()
        self.addresses = [f"127.0.0.1:{await self._server.start(self.addresses[0].replace(':1', ':0'))}"]

    async def stop_serving(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def open(self) -> Gateway:
        settings = GatewaySettings.load(
            data_dir=self.folder,
            grpc_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            trainers=[],
            reward_servers={"late": self.addresses},
        )
        self.gateway = await self._stack.enter_async_context(open_gateway(settings))
        return self.gateway

    async def close(self) -> None:
        await self._stack.aclose()

    async def end(self) -> None:
        await self.close()
        await self.stop_serving()

    async def job_with_completions(self, steps: int = STEPS, groups: int = GROUPS, **spec: Any) -> str:
        hyperparameters = {"rollouts_per_prompt": GROUP, "global_batch_size": 4 * GROUP}
        job = await self.gateway.jobs.create(
            job_spec(rewards=[{"server": "late", "reward": "right"}], hyperparameters=hyperparameters, **spec)
        )
        for step in range(1, steps + 1):
            await self.store_step(job.id, step, rows_of(step, groups))
        return job.id

    async def store_step(self, job_id: str, step: int, rows: Sequence[dict[str, Any]]) -> None:
        uri = f"jobs/{job_id}/attempt-1/completions/step-{step:06d}.parquet"
        path = self.folder / "artifacts" / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
        async with self.store.transaction() as session:
            record = await session.jobs.find(job_id)
            assert record is not None
            if not await session.runs.line(record.key):
                await session.runs.insert(
                    f"run-{job_id}", job_key=record.key, attempt=1, trainer_id="t", from_step=0,
                    checkpoint_uri="", spec_json="{}", created_at=record.job.created_at,
                )  # fmt: skip
            await session.completion_files.insert(
                record.key, CompletionFile(1, step, uri, len(rows), path.stat().st_size, "ab")
            )

    @property
    def store(self) -> Store:
        return self.gateway.jobs._store

    async def over(self, rescore_id: str) -> Rescore:
        async def ended() -> Rescore | None:
            now = await self.gateway.rescores.get(rescore_id)
            return now if now.status.is_terminal else None

        found = await eventually("the end of the rescore", ended, 60.0)
        assert isinstance(found, Rescore)
        return found

    async def results(self, rescore_id: str, limit: int = 500) -> list[RescoreResult]:
        found: list[RescoreResult] = []
        token = ""
        while True:
            page = await self.gateway.rescores.results(rescore_id, limit=limit, page_token=token)
            found += page.items
            token = page.next_page_token
            if not token:
                return found
