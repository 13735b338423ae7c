"""A reward server that does at random everything that the contract allows, and much that networks do.

It keeps to the contract itself, and prints a line for whatever it sees the client do wrong. A score is the
length of the text, so that a mix-up shows.
"""

from __future__ import annotations

import argparse
import asyncio
import random

import grpc
import grpc.aio
from scoring_servers import completions_of, done, frame, info

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc


class ChaosServer(pb_grpc.RewardServiceServicer):
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.held: dict[str, dict[str, tuple[pb.Batch, list[pb.Result]]]] = {}
        self.contents: dict[str, bytes] = {}

    async def GetServerInfo(self, request: object, context: object) -> pb.GetServerInfoResponse:
        description = info(
            pb.Reward(name="length", deterministic=True),
            limits=pb.Limits(max_batch_completions=self.random.choice([0, 7, 40])),
        )
        description.capabilities.result_retention.FromSeconds(30)
        return description

    async def Score(self, requests, context):  # type: ignore[no-untyped-def]
        opening = (await anext(aiter(requests))).open
        held = self.held.setdefault(opening.session_id, {})
        retained = [b for b in opening.pending_batch_ids if b in held and self.random.random() < 0.7]
        for forgotten in set(held) - set(retained):
            del held[forgotten]
        window = largest = self.random.choice([1, 5, 16, 100, 1000])
        owed: dict[str, set[str]] = {
            b: {c.completion_id for c in completions_of(held[b][0])} for b in retained
        }
        out: asyncio.Queue[pb.ScoreResponse | None] = asyncio.Queue()
        out.put_nowait(
            pb.ScoreResponse(
                opened=pb.SessionOpened(max_in_flight_completions=window, retained_batch_ids=retained)
            )
        )
        answering = [asyncio.create_task(self._answer(held, b, owed, out, context)) for b in retained]

        async def read() -> None:
            nonlocal window, largest
            async for request in requests:
                if request.HasField("cancel"):
                    continue
                batch = request.batch
                ids = {c.completion_id for c in completions_of(batch)}
                in_flight = sum(len(open_ids) for open_ids in owed.values())
                if in_flight and in_flight + len(ids) > largest:
                    print(f"window of {largest} exceeded: {in_flight} + {len(ids)}", flush=True)
                if batch.batch_id in owed:
                    print("a batch was sent twice on one stream", flush=True)
                groups = b"".join(g.SerializeToString(deterministic=True) for g in batch.groups)
                if self.contents.setdefault(batch.batch_id, groups) != groups:
                    print("a batch id came back with other groups", flush=True)
                if not batch.HasField("timeout"):
                    print("a batch without a timeout", flush=True)
                owed[batch.batch_id] = ids
                if self.random.random() < 0.02:
                    del owed[batch.batch_id]
                    failure = pb.Failure(code=pb.Failure.CODE_LIMIT_EXCEEDED)
                    out.put_nowait(
                        pb.ScoreResponse(rejected=pb.BatchRejected(batch_id=batch.batch_id, failure=failure))
                    )
                    continue
                held[batch.batch_id] = (batch, [])
                answering.append(asyncio.create_task(self._answer(held, batch.batch_id, owed, out, context)))
                if self.random.random() < 0.05:
                    window = self.random.choice([1, 5, 16, 100, 1000])
                    largest = max(largest, window)
                    update = pb.WindowUpdate(max_in_flight_completions=window)
                    out.put_nowait(pb.ScoreResponse(window=update))
                if self.random.random() < 0.01:
                    out.put_nowait(pb.ScoreResponse(draining=pb.Draining()))
            await asyncio.gather(*answering)
            out.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (answer := await out.get()) is not None:
                yield answer
                if self.random.random() < 0.004:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "chaos")
        finally:
            for task in [reading, *answering]:
                task.cancel()

    async def _answer(self, held, batch_id, owed, out, context) -> None:  # type: ignore[no-untyped-def]
        batch, results = held[batch_id]
        if not results:
            for completion in completions_of(batch):
                one = pb.Result(
                    batch_id=batch_id, completion_id=completion.completion_id, reward_key="length"
                )
                if self.random.random() < 0.05:
                    one.failure.code = pb.Failure.CODE_UNAVAILABLE
                    one.failure.retry_delay.FromMilliseconds(20)
                else:
                    one.score.value = len(completion.text)
                results.append(one)
            self.random.shuffle(results)
        await asyncio.sleep(self.random.random() * 0.01)
        sent, start = [], 0
        while start < len(results):
            end = start + self.random.randint(1, 20)
            part = [r for r in results[start:end] if self.random.random() > 0.005]
            start = end
            for result in part:
                owed[batch_id].discard(result.completion_id)
            if part:
                sent.extend(part)
                out.put_nowait(frame(part + part[: self.random.random() < 0.05]))
            if self.random.random() < 0.1:
                await asyncio.sleep(0.005)
        del owed[batch_id]
        out.put_nowait(done(sent, batch_id))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_RewardServiceServicer_to_server(ChaosServer(arguments.seed), server)
    port = server.add_insecure_port(f"127.0.0.1:{arguments.port}")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
