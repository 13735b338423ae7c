"""What one caller may take, and that nobody else pays for it."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from access_room import GENEROUS, open_guarded
from google.rpc import error_details_pb2, status_pb2

from plaudit.gateway.v1 import token_service_pb2, token_service_pb2_grpc, training_job_service_pb2
from plaudit.types.roles import Role


async def test_who_calls_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    slow = GENEROUS.model_copy(update={"requests_per_second": 0.01, "request_burst": 3})
    async with open_guarded(tmp_path, slow) as guarded:
        codes = [(await guarded.request("GET", "/v1/me", Role.VIEWER)).status_code for _ in range(3)]
        assert codes == [200, 200, 200]
        answer = await guarded.request("GET", "/v1/me", Role.VIEWER)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (429, "RATE_LIMITED", "rate_limit_error")
        # One call in 100 s: the fourth comes up to that much too early.
        assert 90 <= int(answer.headers["Retry-After"]) <= 100
        stub = token_service_pb2_grpc.TokenServiceStub(guarded.edges.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetCaller(
                token_service_pb2.GetCallerRequest(), metadata=guarded.metadata(Role.VIEWER), timeout=10
            )
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailers = dict(refused.value.trailing_metadata() or ())
        details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
        retry = error_details_pb2.RetryInfo()
        assert any(detail.Unpack(retry) for detail in details)
        assert 80 <= retry.retry_delay.seconds <= 100
        assert (await guarded.request("GET", "/v1/me", Role.ADMIN)).status_code == 200
        # Ten times as often: 10 s a call.
        codes = [(await guarded.request("GET", "/v1/me", Role.SERVICE)).status_code for _ in range(20)]
        assert codes == [200] * 20


async def test_open_calls_of_a_token_are_counted(tmp_path: Path) -> None:
    few = GENEROUS.model_copy(update={"calls_at_once": 2})
    async with open_guarded(tmp_path, few) as guarded:
        request = training_job_service_pb2.WatchEventsRequest()

        def watch(role: Role) -> grpc.aio.UnaryStreamCall:
            return guarded.edges.jobs.WatchEvents(request, metadata=guarded.metadata(role), timeout=30)

        held = [watch(Role.VIEWER), watch(Role.VIEWER)]
        for call in held:
            assert await call.read() is not grpc.aio.EOF
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await watch(Role.VIEWER).read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        answer = await guarded.request("GET", "/v1/me", Role.VIEWER)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "TOO_MANY_CALLS")
        assert (await guarded.request("GET", "/v1/me", Role.ADMIN)).status_code == 200
        for call in held:
            call.cancel()
        while (await guarded.request("GET", "/v1/me", Role.VIEWER)).status_code != 200:
            pass


async def test_tokens_can_not_be_tried_without_end(tmp_path: Path) -> None:
    strict = GENEROUS.model_copy(update={"refusals_per_minute": 3.0})
    async with open_guarded(tmp_path, strict) as guarded:
        codes = [(await guarded.request("GET", "/v1/me", f"vk_{n}")).status_code for n in range(6)]
        assert codes == [401, 401, 401, 429, 429, 429]
        # A right one is let in from the same address all the same.
        assert (await guarded.request("GET", "/v1/me", Role.VIEWER)).status_code == 200
        stub = token_service_pb2_grpc.TokenServiceStub(guarded.edges.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetCaller(token_service_pb2.GetCallerRequest(), timeout=10)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_requests_without_a_token_are_limited_by_address(tmp_path: Path) -> None:
    slow = GENEROUS.model_copy(update={"anonymous_requests_per_second": 0.5})
    async with open_guarded(tmp_path, slow) as guarded:
        codes = [(await guarded.request("GET", "/health", None)).status_code for _ in range(3)]
        assert codes[0] == 200
        assert codes[-1] == 429
