"""A small correct reward server, to plant faults in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, ClassVar

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from plaudit.reward.v1 import reward_service_pb2 as pb

SERVICE_NAME = "plaudit.reward.v1.RewardService"

Context = grpc.aio.ServicerContext[Any, Any]
Frame = pb.ScoreResponse | bytes


class CorrectServer:
    """1 where the answer stands in the completion. Keeps the required rules, and checks what opens a session.

    `breaks` is the id of the rule that a planted fault breaks, `health` what is told of the service.
    """

    breaks: ClassVar[str] = ""
    health: ClassVar[health_pb2.HealthCheckResponse.ServingStatus] = health_pb2.HealthCheckResponse.SERVING
    window: ClassVar[int] = 256
    receives_bytes: ClassVar[int] = 4 * 2**20

    def __init__(self) -> None:
        self.scored = 0

    # What it says of itself.

    def info(self) -> pb.GetServerInfoResponse:
        return pb.GetServerInfoResponse(
            server_name="planted",
            server_version="1",
            min_protocol_version=1,
            max_protocol_version=1,
            rewards=[self.reward()],
        )

    def reward(self) -> pb.Reward:
        return pb.Reward(
            name="last_number",
            description="1 where the last word is the answer.",
            scope=pb.Reward.SCOPE_COMPLETION,
            min_value=0.0,
            max_value=1.0,
            deterministic=True,
            required_columns=["answer"],
        )

    # What it answers.

    def value(self, group: pb.PromptGroup, completion: pb.Completion) -> float:
        answer = group.columns["answer"]
        wanted = str(answer.int_value) if answer.WhichOneof("kind") == "int_value" else answer.string_value
        return float(wanted in completion.text and wanted != "")

    def result(
        self, batch: pb.Batch, group: pb.PromptGroup, completion: pb.Completion, key: str
    ) -> pb.Result:
        result = pb.Result(batch_id=batch.batch_id, completion_id=completion.completion_id, reward_key=key)
        if "answer" not in group.columns:
            result.failure.code = pb.Failure.CODE_INVALID
            result.failure.message = "the row has no answer"
        else:
            result.score.value = self.value(group, completion)
        return result

    def results(self, batch: pb.Batch, keys: Sequence[str]) -> list[pb.Result]:
        return [
            self.result(batch, group, completion, key)
            for group in batch.groups
            for completion in group.completions
            for key in keys
        ]

    def done(self, batch: pb.Batch, results: Sequence[pb.Result]) -> pb.BatchDone:
        scored = sum(result.HasField("score") for result in results)
        return pb.BatchDone(batch_id=batch.batch_id, scored_count=scored, failed_count=len(results) - scored)

    async def answer(self, batch: pb.Batch, keys: Sequence[str]) -> AsyncIterator[Frame]:
        results = self.results(batch, keys)
        self.scored += len(results)
        for begin in range(0, len(results), 64):
            yield pb.ScoreResponse(results=pb.Results(results=results[begin : begin + 64]))
        yield pb.ScoreResponse(done=self.done(batch, results))

    def wanted_keys(self, batch: pb.Batch, keys: Sequence[str]) -> Sequence[str]:
        return tuple(batch.reward_keys) or keys

    def session_keys(self, opening: pb.SessionOpen) -> Sequence[str]:
        return [selection.key for selection in opening.rewards]

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        yield pb.ScoreResponse(opened=pb.SessionOpened(max_in_flight_completions=self.window))

    # The conversation.

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        return self.info()

    async def ScoreOnce(self, request: pb.ScoreOnceRequest, context: Context) -> pb.ScoreOnceResponse:
        keys = [selection.key for selection in request.rewards]
        return pb.ScoreOnceResponse(results=self.results(request.batch, keys))

    async def MakeExamples(
        self, request: pb.MakeExamplesRequest, context: Context
    ) -> pb.MakeExamplesResponse:
        return pb.MakeExamplesResponse(
            examples=[
                pb.GroupExamples(
                    group_id=group.group_id,
                    good_texts=[f"it is {group.columns['answer'].int_value}"],
                    bad_texts=["I do not know"],
                )
                for group in request.groups
            ]
        )

    async def Score(self, frames: AsyncIterator[pb.ScoreRequest], context: Context) -> AsyncIterator[Frame]:
        keys: Sequence[str] | None = None
        async for frame in frames:
            match frame.WhichOneof("frame"):
                case "open":
                    if keys is not None:
                        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "open came twice")
                    if frame.open.protocol_version != 1:
                        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "version 1 is spoken")
                    await self.check(frame.open, context)
                    keys = self.session_keys(frame.open)
                    for answer in self.opened(frame.open):
                        yield answer
                case "batch":
                    if keys is None:
                        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "open comes first")
                    assert keys is not None
                    async for answer in self.answer(frame.batch, self.wanted_keys(frame.batch, keys)):
                        yield answer
                case "cancel":
                    await self.cancelled(context)
                case None:
                    await self.unknown(context)
        await self.half_closed(context)

    async def check(self, opening: pb.SessionOpen, context: Context) -> None:
        offered = {reward.name for reward in self.info().rewards}
        keys = [selection.key for selection in opening.rewards]
        if "" in keys or len(set(keys)) < len(keys) or {s.name for s in opening.rewards} - offered:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "rewards are wrong")

    async def cancelled(self, context: Context) -> None:
        pass

    async def unknown(self, context: Context) -> None:
        pass

    async def half_closed(self, context: Context) -> None:
        pass


def _bytes_of(message: Any) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


async def start(
    servicer: CorrectServer,
    *,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    credentials: grpc.ServerCredentials | None = None,
) -> tuple[grpc.aio.Server, int]:
    """Serves on loopback; the server and its port."""
    server = grpc.aio.server(
        interceptors=interceptors,
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.max_receive_message_length", servicer.receives_bytes),
        ],
    )
    handlers = {
        "GetServerInfo": grpc.unary_unary_rpc_method_handler(
            servicer.GetServerInfo, pb.GetServerInfoRequest.FromString, _bytes_of
        ),
        "Score": grpc.stream_stream_rpc_method_handler(servicer.Score, pb.ScoreRequest.FromString, _bytes_of),
        "ScoreOnce": grpc.unary_unary_rpc_method_handler(
            servicer.ScoreOnce, pb.ScoreOnceRequest.FromString, _bytes_of
        ),
    }
    handlers["MakeExamples"] = grpc.unary_unary_rpc_method_handler(
        servicer.MakeExamples, pb.MakeExamplesRequest.FromString, _bytes_of
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))
    told = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(told, server)
    for name in ("", SERVICE_NAME):
        await told.set(name, servicer.health)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    return server, port
