"""plaudit.reward.v1.RewardService: messages in, messages out; all else is the engine's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from plaudit.errors import FailedPreconditionError, FieldViolation, InvalidArgumentError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.types.scoring import PROTOCOL_VERSION
from reward_service._convert import (
    batch_of,
    examples_to_proto,
    frame_to_proto,
    needs_to_proto,
    prompts_of,
    results_to_proto,
    selections_of,
    session_request_of,
)
from reward_service._examples import ExampleWriter
from reward_service._reading import reader_of
from reward_service._session import Session
from reward_service._stream import Stream
from reward_service.session import ScoreEngine

OPEN_TIMEOUT_SECONDS = 30.0

# A single call answers with what it has before its deadline, for after it nobody reads the answer.
_DEADLINE_MARGIN = 0.1
_LONGEST_DEADLINE_MARGIN_SECONDS = 0.5

SERVICE_NAME = "plaudit.reward.v1.RewardService"

Frames = AsyncIterator[pb.ScoreRequest]
Context = grpc.aio.ServicerContext[Any, Any]


class RewardServicer(pb_grpc.RewardServiceServicer):
    """Serves an engine under a description."""

    def __init__(self, engine: ScoreEngine, examples: ExampleWriter, info: pb.GetServerInfoResponse) -> None:
        self._engine = engine
        self._examples = examples
        self._info = info

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        """The server's description."""
        return self._info

    async def Score(self, request_iterator: Frames, context: Context) -> AsyncIterator[pb.ScoreResponse]:
        """The conversation of the proto file."""
        opening = await _opening(request_iterator)
        session, stream = await self._engine.open(session_request_of(opening))
        reader = asyncio.create_task(self._read(request_iterator, session, stream))

        def close(_: Any) -> None:
            reader.cancel()
            self._engine.detach(session, stream)

        # Not a `finally`: where the client breaks off while a frame is being sent to it, this generator is
        # closed whenever it is collected.
        context.add_done_callback(close)  # type: ignore[arg-type]  # the stub wants a class of its own
        async for frame in stream.frames():
            yield frame_to_proto(frame)

    async def ScoreOnce(self, request: pb.ScoreOnceRequest, context: Context) -> pb.ScoreOnceResponse:
        """Scores one batch, or, where it has no groups, checks the rewards that are selected."""
        remaining = context.time_remaining()
        if remaining is not None:
            remaining -= min(remaining * _DEADLINE_MARGIN, _LONGEST_DEADLINE_MARGIN_SECONDS)
        selections = selections_of(request.rewards)
        if not request.batch.groups:
            return needs_to_proto(await self._engine.check(selections))
        batch = batch_of(request.batch)
        results = await self._engine.score_once(selections, batch, remaining)
        return results_to_proto(results)

    async def MakeExamples(
        self, request: pb.MakeExamplesRequest, context: Context
    ) -> pb.MakeExamplesResponse:
        """Texts that a reward calls good, and bad."""
        (selection,) = selections_of([request.reward])
        unreadable: list[FieldViolation] = []
        prompts = prompts_of(request.groups, unreadable)
        return examples_to_proto(self._examples.write(selection, prompts, unreadable))

    async def _read(self, frames: Frames, session: Session, stream: Stream) -> None:
        try:
            async for frame in frames:
                match frame.WhichOneof("frame"):
                    case "batch":
                        self._engine.submit(session, stream, batch_of(frame.batch))
                    case "cancel":
                        self._engine.cancel(session, stream, frame.cancel.batch_id)
                    case "open":
                        stream.end(
                            InvalidArgumentError.of("open", "came twice; it is the first frame of a stream")
                        )
                        return
                await stream.room()
            stream.half_close()
        except DecodeError as error:
            stream.end(_unreadable(error))
        except Exception as error:
            stream.end(error)


def register(servicer: RewardServicer, server: grpc.aio.Server) -> None:
    """Puts a servicer on a server, with readers of its own: see `_reading`."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetServerInfo": grpc.unary_unary_rpc_method_handler(
            servicer.GetServerInfo,
            request_deserializer=reader_of(pb.GetServerInfoRequest),
            response_serializer=pb.GetServerInfoResponse.SerializeToString,
        ),
        "Score": grpc.stream_stream_rpc_method_handler(
            servicer.Score,
            request_deserializer=reader_of(pb.ScoreRequest),
            response_serializer=pb.ScoreResponse.SerializeToString,
        ),
        "ScoreOnce": grpc.unary_unary_rpc_method_handler(
            servicer.ScoreOnce,
            request_deserializer=reader_of(pb.ScoreOnceRequest),
            response_serializer=pb.ScoreOnceResponse.SerializeToString,
        ),
        "MakeExamples": grpc.unary_unary_rpc_method_handler(
            servicer.MakeExamples,
            request_deserializer=reader_of(pb.MakeExamplesRequest),
            response_serializer=pb.MakeExamplesResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))


async def _opening(frames: Frames) -> pb.SessionOpen:
    try:
        frame = await asyncio.wait_for(anext(frames), OPEN_TIMEOUT_SECONDS)
    except TimeoutError:
        raise InvalidArgumentError.of(
            "open", f"did not come within {OPEN_TIMEOUT_SECONDS:g} s; it is the first frame of a stream"
        ) from None
    except DecodeError as error:
        raise _unreadable(error) from None
    except StopAsyncIteration:
        raise InvalidArgumentError.of("open", "is missing; it is the first frame of a stream") from None
    kind = frame.WhichOneof("frame")
    if kind != "open":
        raise InvalidArgumentError.of(
            "open", f"is missing; the first frame was {kind or 'of an unknown kind'}"
        )
    if frame.open.protocol_version != PROTOCOL_VERSION:
        raise FailedPreconditionError(
            f"protocol_version {frame.open.protocol_version} is not spoken here; this server speaks "
            f"{PROTOCOL_VERSION} to {PROTOCOL_VERSION}",
            reason="PROTOCOL_VERSION",
        )
    return frame.open


def _unreadable(error: DecodeError) -> InvalidArgumentError:
    return InvalidArgumentError.of("(frame)", f"is no ScoreRequest: {error}")
