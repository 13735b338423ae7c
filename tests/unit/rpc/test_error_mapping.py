"""Errors survive the wire: what a servicer raises is what a client catches."""

from __future__ import annotations

import grpc
import pytest
import structlog
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from plaudit import errors
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1.reward_service_pb2_grpc import (
    RewardServiceServicer,
    RewardServiceStub,
    add_RewardServiceServicer_to_server,
)
from plaudit.rpc import GrpcServer, error_from_rpc, open_channel, open_sync_channel

RAISED: list[Exception] = [
    errors.InvalidArgumentError(
        [errors.FieldViolation("a.b", '7 is refused; "x" works'), errors.FieldViolation("c[1]", "is missing")]
    ),
    errors.NotFoundError("there is no job job_1", field="id"),
    errors.AlreadyExistsError("the name is taken"),
    errors.FailedPreconditionError("it is completed", reason="STATUS_FORBIDS"),
    errors.ResourceExhaustedError("full", reason="NO_CAPACITY", retry_after=1.5),
    errors.OutOfRangeError("too old", reason="CURSOR_EXPIRED"),
    errors.UnauthenticatedError("no token"),
    errors.PermissionDeniedError("viewers may not"),
    errors.UnavailableError("draining", reason="DRAINING", retry_after=0.25),
    errors.DeadlineExceededError("too slow"),
    errors.UnimplementedError("no such thing"),
]


class Raising(RewardServiceServicer):
    """Raises what the request's client_name counts to."""

    async def GetServerInfo(self, request, context):
        raise (
            RAISED[int(request.client_name)] if request.client_name.isdigit() else ValueError("secret detail")
        )

    async def Score(self, request_iterator, context):
        yield pb.ScoreResponse(opened=pb.SessionOpened(max_in_flight_completions=1))
        raise RAISED[0]


@pytest.fixture
async def address():
    server = GrpcServer(["plaudit.reward.v1.RewardService"])
    add_RewardServiceServicer_to_server(Raising(), server.server)
    port = await server.start("127.0.0.1:0")
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.mark.parametrize("index", range(len(RAISED)), ids=lambda i: type(RAISED[i]).__name__)
async def test_every_error_arrives_as_it_was_raised(address: str, index: int) -> None:
    raised = RAISED[index]
    assert isinstance(raised, errors.PlauditError)
    async with open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await RewardServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(client_name=str(index)))
    arrived = error_from_rpc(caught.value)
    assert type(arrived) is type(raised)
    assert (arrived.message, arrived.reason, arrived.retry_after) == (
        raised.message,
        raised.reason,
        raised.retry_after,
    )
    if isinstance(raised, errors.InvalidArgumentError):
        assert isinstance(arrived, errors.InvalidArgumentError)
        assert arrived.violations == raised.violations


async def test_an_unexpected_error_tells_an_incident_and_nothing_else(address: str) -> None:
    async with open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await RewardServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(client_name="bug"))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "incident" in caught.value.details()
    assert "secret" not in caught.value.details()


async def test_a_method_that_the_servicer_leaves_out_is_no_error_of_it(address: str) -> None:
    async with open_channel(address) as channel:
        with structlog.testing.capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError) as caught:
            await RewardServiceStub(channel).ScoreOnce(pb.ScoreOnceRequest())
    arrived = error_from_rpc(caught.value, target="the reward server")
    assert isinstance(arrived, errors.UnimplementedError)
    assert arrived.message == "this server does not serve /plaudit.reward.v1.RewardService/ScoreOnce"
    assert logs == []


async def test_an_error_after_frames_of_a_stream_arrives_too(address: str) -> None:
    async with open_channel(address) as channel:
        call = RewardServiceStub(channel).Score()
        assert (await call.read()).opened.max_in_flight_completions == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert error_from_rpc(caught.value).violations == RAISED[0].violations  # type: ignore[attr-defined]


def test_a_service_that_is_not_there_is_named() -> None:
    with open_sync_channel("127.0.0.1:1") as channel, pytest.raises(grpc.RpcError) as caught:
        RewardServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=5)
    arrived = error_from_rpc(caught.value, target="the reward server at 127.0.0.1:1")
    assert isinstance(arrived, errors.UnavailableError)
    assert "the reward server at 127.0.0.1:1 cannot be reached" in arrived.message


async def test_health_is_told_for_each_service_and_for_all(address: str) -> None:
    async with open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "plaudit.reward.v1.RewardService"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_taken_port_is_refused_with_the_way_out(address: str) -> None:
    with pytest.raises(errors.UnavailableError, match="the port is taken"):
        await GrpcServer([]).start(address)


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe"], ids=["no message", "text that is not UTF-8"]
)
async def test_a_request_that_cannot_be_read_is_told_as_such(address: str, data: bytes) -> None:
    async with open_channel(address) as channel:
        call = channel.unary_unary("/plaudit.reward.v1.RewardService/GetServerInfo")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(data)
    error = error_from_rpc(caught.value)
    assert isinstance(error, errors.InvalidArgumentError)
    assert [v.field for v in error.violations] == ["(request)"]
    assert error.message.startswith("(request): cannot be read (")


async def test_a_service_that_does_not_know_a_call_is_told_by_its_address(address: str) -> None:
    async with open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/plaudit.reward.v1.RewardService/Nope")(b"")
    error = error_from_rpc(caught.value, target="the gateway at there")
    assert isinstance(error, errors.UnimplementedError)
    assert error.message.startswith("the gateway at there does not know this call")


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [
        (error_details_pb2.RetryInfo(retry_delay={"seconds": 2**62}), 315_576_000_000.0),
        (error_details_pb2.RetryInfo(retry_delay={"seconds": -(2**62)}), 0.0),
        (error_details_pb2.RetryInfo(retry_delay={"seconds": 2, "nanos": 500_000_000}), 2.5),
        (None, None),
    ],
    ids=["an age", "before", "fine", "junk"],
)
def test_details_of_strangers_raise_nothing(
    retry: error_details_pb2.RetryInfo | None, seconds: float | None
) -> None:
    status = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="busy")
    if retry is not None:
        status.details.add().Pack(retry)
    else:
        status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\xff\xff")
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    failure = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), trailing, "busy")
    told = error_from_rpc(failure)
    assert isinstance(told, errors.UnavailableError)
    assert told.retry_after == seconds


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ("Internal error from Core", errors.UnavailableError),
        ("Internal error of ours", errors.InternalError),
    ],
)
def test_a_status_that_the_client_library_lost_is_no_fault_of_the_service(
    details: str, kind: type[errors.PlauditError]
) -> None:
    none = grpc.aio.Metadata()
    failure = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, none, none, details)
    told = error_from_rpc(failure, target="the gateway at there")
    assert type(told) is kind
    assert ("the gateway at there ended the call" in told.message) is (kind is errors.UnavailableError)
