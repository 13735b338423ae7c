"""Stands before every gRPC method: who calls, whether they may, and what is written down of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health

from gateway.access import Access, Caller
from gateway.access.callers import enter
from gateway.access.rules import CallRule, rule_of_method
from gateway.access.service import peer_name
from plaudit.errors import PlauditError, UnauthenticatedError

if TYPE_CHECKING:
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

_HEALTH: Final = f"/{health.SERVICE_NAME}/"
_ID_FIELDS: Final = ("id", "job_id", "token")


class AccessInterceptor(grpc.aio.ServerInterceptor):
    """Lets in whom `access` lets in. Health needs no token: its askers (probes, balancers) have none."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        method = handler_call_details.method
        if method.startswith(_HEALTH):
            handler = await continuation(handler_call_details)
            return None if handler is None else _wrapped(handler, self._anonymous_call)
        rule = rule_of_method(method)
        caller = None
        try:
            caller = await self._access.identify(_authorization(handler_call_details))
            self._access.admit(caller, rule)
        except PlauditError as error:
            return self._refusal(error, caller, method)
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        call = _Call(self._access, caller, rule, method)
        return _wrapped(handler, call.open)

    @asynccontextmanager
    async def _anonymous_call(self, request: Any, context: Any) -> AsyncIterator[_Outcome]:
        with self._access.within_anonymous(_peer(context)):
            yield _Outcome()

    def _refusal(self, error: PlauditError, caller: Caller | None, method: str) -> Handler:
        async def refuse(requests: Any, context: Any) -> AsyncIterator[Any]:
            peer = _peer(context)
            if isinstance(error, UnauthenticatedError):
                self._access.refuse(peer)
            elif caller is not None:
                await self._access.audit.write(
                    caller, peer=peer, call=method, subject="", outcome=error.reason
                )
            raise error
            yield

        # Whatever the method takes and returns: nothing is read, and only the status is sent.
        handler: Handler = grpc.stream_stream_rpc_method_handler(refuse)
        return handler


@dataclass(slots=True)
class _Outcome:
    """What came of a call, as far as it is written down."""

    response: Any = None


@dataclass(frozen=True, slots=True)
class _Call:
    access: Access
    caller: Caller
    rule: CallRule
    method: str

    @asynccontextmanager
    async def open(self, request: Any, context: Any) -> AsyncIterator[_Outcome]:
        """Holds the call open, and writes down what it changed."""
        outcome = _Outcome()
        words = "ok"
        try:
            with self.access.within(self.caller):
                enter(self.caller)
                yield outcome
        except PlauditError as error:
            words = error.reason
            raise
        except asyncio.CancelledError:
            words = "CANCELLED"
            raise
        except Exception:
            words = "INTERNAL"
            raise
        finally:
            if self.rule.changes:
                await self.access.audit.write(
                    self.caller,
                    peer=_peer(context),
                    call=self.method,
                    subject=_id_in(outcome.response) or _id_in(request),
                    outcome=words,
                )


def _wrapped(handler: Handler, around: Callable[[Any, Any], Any]) -> Handler:
    # The published types of handlers describe the threaded server; with the asyncio server the same
    # attributes are coroutines and async generators, hence Any.
    serve: Any
    make: Any
    served: Any

    async def unary(request: Any, context: Any) -> Any:
        async with around(request, context) as outcome:
            outcome.response = await serve(request, context)
        return outcome.response

    async def streaming(request: Any, context: Any) -> AsyncIterator[Any]:
        async with around(request, context), aclosing(serve(request, context)) as responses:
            async for response in responses:
                yield response

    async def writing(request: Any, context: Any) -> None:
        async with around(request, context):
            await serve(request, context)

    if handler.response_streaming:
        serve = handler.stream_stream if handler.request_streaming else handler.unary_stream
        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        # Health.Watch of gRPC's own servicer writes to the context instead.
        served = writing if inspect.iscoroutinefunction(serve) else streaming
    else:
        serve = handler.stream_unary if handler.request_streaming else handler.unary_unary
        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        served = unary
    wrapped: Handler = make(served, handler.request_deserializer, handler.response_serializer)
    return wrapped


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    given = [value for name, value in details.invocation_metadata or () if name == "authorization"]
    if not given:
        return None
    if len(given) > 1 or not isinstance(given[0], str):
        raise UnauthenticatedError("the metadata authorization is there more than once; send it once")
    return given[0]


def _peer(context: Any) -> str:
    # "ipv4:127.0.0.1:54321", "ipv6:%5B::1%5D:54321"
    address = unquote(context.peer()).partition(":")[2]
    return peer_name(address.rpartition(":")[0].strip("[]"))


def _id_in(message: Any) -> str:
    """The id in a request or a response, or in what a response holds; "" where there is none."""
    if not isinstance(message, Message):
        return ""
    for name in _ID_FIELDS:
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is not None:
            value = getattr(message, name)
            return value if isinstance(value, str) else _id_in(value)
    return ""
