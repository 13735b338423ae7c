"""Reward servers for tests, written against the proto and grpcio alone, well-behaved and misbehaving.

As a program it is a well-behaved server in a process of its own, for tests that kill it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc

Requests = Iterator[pb.ScoreRequest]
Answers = Iterable[pb.ScoreResponse]
Script = Callable[[pb.SessionOpen, Requests, grpc.ServicerContext], Answers]


LENGTH = pb.Reward(name="length", scope=pb.Reward.SCOPE_COMPLETION)


def info(*rewards: pb.Reward, **fields: Any) -> pb.GetServerInfoResponse:
    """The description of a server with these rewards, or with `length` alone."""
    usual = {
        "server_name": "scripted",
        "server_version": "1.0",
        "min_protocol_version": 1,
        "max_protocol_version": 1,
        "rewards": rewards or [LENGTH],
    }
    return pb.GetServerInfoResponse(**{**usual, **fields})


def opened(window: int = 1024, retained: Sequence[str] = ()) -> pb.ScoreResponse:
    return pb.ScoreResponse(
        opened=pb.SessionOpened(max_in_flight_completions=window, retained_batch_ids=retained)
    )


def completions_of(batch: pb.Batch) -> list[pb.Completion]:
    return [completion for group in batch.groups for completion in group.completions]


def length_results(batch: pb.Batch, keys: Sequence[str] = ("length",)) -> list[pb.Result]:
    """The length of the text, as every well-behaved server here scores it."""
    return [
        pb.Result(
            batch_id=batch.batch_id,
            completion_id=completion.completion_id,
            reward_key=key,
            score=pb.Score(value=len(completion.text)),
        )
        for completion in completions_of(batch)
        for key in keys
    ]


def frame(results: Iterable[pb.Result]) -> pb.ScoreResponse:
    return pb.ScoreResponse(results=pb.Results(results=results))


def done(results: Sequence[pb.Result], batch_id: str = "") -> pb.ScoreResponse:
    kinds = [result.WhichOneof("outcome") for result in results]
    return pb.ScoreResponse(
        done=pb.BatchDone(
            batch_id=batch_id or results[0].batch_id,
            scored_count=kinds.count("score"),
            not_applicable_count=kinds.count("not_applicable"),
            failed_count=kinds.count("failure"),
        )
    )


def well_behaved(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
    """Scores every batch at once with the length of its texts."""
    yield opened()
    for request in requests:
        if request.HasField("batch"):
            results = length_results(request.batch, [selection.key for selection in session.rewards])
            yield frame(results)
            yield done(results)


def each_batch(
    answer: Callable[[pb.Batch], Answers], *, window: int = 1024
) -> Callable[[pb.SessionOpen, Requests, grpc.ServicerContext], Answers]:
    """A script that answers each batch by `answer`, one after the other."""

    def script(session: pb.SessionOpen, requests: Requests, context: grpc.ServicerContext) -> Answers:
        yield opened(window)
        for request in requests:
            if request.HasField("batch"):
                yield from answer(request.batch)

    return script


class ScriptedServer(pb_grpc.RewardServiceServicer):
    """A server on loopback whose n-th Score stream runs the n-th script, and the last one from then on.

    It records what it was sent: `opens`, `batches`, `cancels`, and the number of `clean_ends` (half-closes).
    """

    def __init__(
        self,
        *scripts: Script,
        description: pb.GetServerInfoResponse | None = None,
        port: int = 0,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.scripts = list(scripts) or [well_behaved]
        self.description = description or info()
        self.opens: list[pb.SessionOpen] = []
        self.batches: list[pb.Batch] = []
        self.batch_times: list[float] = []
        self.cancels: list[str] = []
        self.frame_sizes: list[int] = []
        self.clean_ends = 0
        self.infos = 0
        self._lock = threading.Lock()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=16), options=[("grpc.so_reuseport", 0), *options]
        )
        pb_grpc.add_RewardServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self, grace: float | None = None) -> None:
        self._server.stop(grace).wait(5)

    def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: grpc.ServicerContext
    ) -> pb.GetServerInfoResponse:
        self.infos += 1
        return self.description

    def Score(self, request_iterator: Requests, context: grpc.ServicerContext) -> Answers:
        first = next(request_iterator)
        with self._lock:
            script = self.scripts[min(len(self.opens), len(self.scripts) - 1)]
            self.opens.append(first.open)
        yield from script(first.open, self._recorded(request_iterator), context)

    def _recorded(self, requests: Requests) -> Requests:
        for request in requests:
            self.frame_sizes.append(request.ByteSize())
            if request.HasField("batch"):
                self.batch_times.append(time.monotonic())
                self.batches.append(request.batch)
            elif request.HasField("cancel"):
                self.cancels.append(request.cancel.batch_id)
            yield request
        self.clean_ends += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each batch is answered")
    parser.add_argument("--window", type=int, default=1024)
    arguments = parser.parse_args()

    def answer(batch: pb.Batch) -> Answers:
        time.sleep(arguments.delay)
        results = length_results(batch)
        half = len(results) // 2
        yield frame(results[:half] or results)
        if half:
            yield frame(results[half:])
        yield done(results)

    server = ScriptedServer(each_batch(answer, window=arguments.window), port=arguments.port)
    print(server.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
