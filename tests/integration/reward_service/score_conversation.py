"""The raw Score protocol, for tests: generated messages over a channel, and nothing of ours in between."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc

PATIENCE_SECONDS = 20.0


def column(value: object) -> pb.ColumnValue:
    """A column of a plain type."""
    match value:
        case bool():
            return pb.ColumnValue(bool_value=value)
        case int():
            return pb.ColumnValue(int_value=value)
        case float():
            return pb.ColumnValue(double_value=value)
        case str():
            return pb.ColumnValue(string_value=value)
    return pb.ColumnValue()


def group(texts: Iterable[str], first_id: int = 0, group_id: str = "g", **columns: object) -> pb.PromptGroup:
    """A group whose completions have the ids first_id, first_id + 1, …"""
    return pb.PromptGroup(
        group_id=group_id,
        prompt=[pb.Message(role="user", content="What is 5 + 7?")],
        columns={name: column(value) for name, value in columns.items()},
        completions=[
            pb.Completion(completion_id=str(first_id + i), text=text, token_count=len(text.split()))
            for i, text in enumerate(texts)
        ],
    )


def batch(
    batch_id: str, *groups: pb.PromptGroup, timeout: float | None = 60.0, keys: Sequence[str] = ()
) -> pb.Batch:
    """A batch."""
    made = pb.Batch(batch_id=batch_id, groups=groups, reward_keys=keys)
    if timeout is not None:
        made.timeout.CopyFrom(duration(timeout))
    return made


def texts(batch_id: str, *completions: str, **how: Any) -> pb.Batch:
    """A batch of one group with these completions, ids 0, 1, …"""
    return batch(batch_id, group(completions), **how)


def duration(seconds: float) -> duration_pb2.Duration:
    made = duration_pb2.Duration()
    made.FromMilliseconds(round(seconds * 1000))
    return made


async def eventually(condition: Callable[[], object]) -> None:
    """Waits until `condition` holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 (what is waited for knows no event)
            await asyncio.sleep(0.01)


def batches_of(servers: Any) -> list[str]:
    """Ids of the batches that the last server holds, over all sessions."""
    return [batch_id for session in servers.last.engine._sessions.values() for batch_id in session._batches]


class Conversation:
    """One Score stream."""

    def __init__(self, channel: grpc.aio.Channel, session_id: str = "") -> None:
        self.session_id = session_id or str(uuid.uuid4())
        self.call = pb_grpc.RewardServiceStub(channel).Score()
        self.results: list[pb.Result] = []
        self.done: dict[str, pb.BatchDone] = {}
        self.rejected: dict[str, pb.Failure] = {}
        self.frames: list[str] = []

    async def open(
        self,
        *rewards: str,
        pending: Sequence[str] = (),
        version: int = 1,
        job_id: str = "",
        **configs: str,
    ) -> pb.SessionOpened:
        """Opens the session; each reward under its name as key."""
        selections = [
            pb.RewardSelection(key=name, name=name, config_json=configs.get(name, "")) for name in rewards
        ]
        return await self.open_with(
            pb.SessionOpen(
                session_id=self.session_id,
                protocol_version=version,
                rewards=selections,
                pending_batch_ids=pending,
                job_id=job_id,
            )
        )

    async def open_with(self, message: pb.SessionOpen) -> pb.SessionOpened:
        await self.call.write(pb.ScoreRequest(open=message))
        frame = await self.read()
        assert frame is not None
        assert frame.WhichOneof("frame") == "opened"
        return frame.opened

    async def send(self, *batches: pb.Batch) -> None:
        for one in batches:
            await self.call.write(pb.ScoreRequest(batch=one))

    async def cancel(self, batch_id: str) -> None:
        await self.call.write(pb.ScoreRequest(cancel=pb.BatchCancel(batch_id=batch_id)))

    async def read(self) -> pb.ScoreResponse | None:
        """The next frame, noted; None at the end of a stream that ended with OK."""
        frame: Any = await asyncio.wait_for(self.call.read(), PATIENCE_SECONDS)
        if frame is grpc.aio.EOF:
            return None
        kind = frame.WhichOneof("frame")
        self.frames.append(kind)
        match kind:
            case "results":
                assert frame.results.results, "a results frame is never empty"
                self.results.extend(frame.results.results)
            case "done":
                assert frame.done.batch_id not in self.done, "done came twice"
                self.done[frame.done.batch_id] = frame.done
            case "rejected":
                self.rejected[frame.rejected.batch_id] = frame.rejected.failure
        return frame

    async def until(self, *batch_ids: str) -> Conversation:
        """Reads until each of the batches is done or rejected."""
        while not all(batch_id in self.done or batch_id in self.rejected for batch_id in batch_ids):
            assert await self.read() is not None, "the stream ended too early"
        return self

    async def close(self) -> Conversation:
        """Half-closes, and reads to the end, which must be OK."""
        await self.call.done_writing()
        while await self.read() is not None:
            pass
        assert await self.call.code() is grpc.StatusCode.OK
        return self

    async def ending(self) -> grpc.aio.AioRpcError:
        """Reads to the end, which must be an error, and returns that."""
        try:
            while await self.read() is not None:
                pass
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError("the stream ended with OK")

    def of(self, batch_id: str) -> dict[str, pb.Result]:
        """Results of a batch by completion id; for sessions with one reward."""
        found = [result for result in self.results if result.batch_id == batch_id]
        by_id = {result.completion_id: result for result in found}
        assert len(by_id) == len(found), "a completion has two results"
        return by_id

    def values(self, batch_id: str) -> dict[str, float]:
        """Values of a batch, all of which must be scores."""
        found = self.of(batch_id)
        assert all(result.HasField("score") for result in found.values())
        return {completion_id: result.score.value for completion_id, result in found.items()}

    def codes(self, batch_id: str) -> dict[str, str]:
        """Outcomes of a batch, in words."""
        words = {}
        for completion_id, result in self.of(batch_id).items():
            outcome = result.WhichOneof("outcome") or "nothing"
            words[completion_id] = (
                pb.Failure.Code.Name(result.failure.code) if outcome == "failure" else outcome
            )
        return words


def details_of(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """The google.rpc details of an error: reason, violations by field, retry delay in seconds."""
    found: dict[str, Any] = {}
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in status_pb2.Status.FromString(value).details:
            info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
            retry = error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                found["reason"] = info.reason
            elif detail.Unpack(bad):
                found["violations"] = {v.field: v.description for v in bad.field_violations}
            elif detail.Unpack(retry):
                found["retry_delay"] = retry.retry_delay.ToTimedelta().total_seconds()
    return found
