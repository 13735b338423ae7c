"""Server interceptors: errors become statuses here, and nowhere else."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from plaudit.errors import InternalError, InvalidArgumentError, PlauditError, UnimplementedError
from plaudit.rpc._errors import status_of
from plaudit.service import get_logger

log = get_logger(__name__)

_NO_HANDLING = (asyncio.CancelledError, grpc.aio.AbortError)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns a PlauditError of a servicer into its status, a method that it leaves out into UNIMPLEMENTED, and
    anything else into INTERNAL with an id.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        wrap = _streaming if handler.response_streaming else _unary
        return wrap(handler, handler_call_details.method)


# The published types of handlers describe the threaded server; with the asyncio server the same attributes
# are coroutines and async generators, hence Any below.


def _streaming(handler: grpc.RpcMethodHandler[Any, Any], method: str) -> grpc.RpcMethodHandler[Any, Any]:
    serve: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream
    make: Any = (
        grpc.stream_stream_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_stream_rpc_method_handler
    )

    deserializer, parse = _parsing(handler)

    async def streaming(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            request = parse(request)
            # Closed at once where the client breaks off, so that the servicer lets go of what it holds.
            async with aclosing(serve(request, context)) as responses:
                async for response in responses:
                    yield response
        except _NO_HANDLING:
            raise
        except Exception as error:
            await _abort(context, method, error)

    async def writing(request: Any, context: Any) -> None:
        try:
            await serve(parse(request), context)
        except _NO_HANDLING:
            raise
        except Exception as error:
            await _abort(context, method, error)

    # Health.Watch of gRPC's own servicer writes to the context instead.
    served = writing if inspect.iscoroutinefunction(serve) else streaming
    wrapped: grpc.RpcMethodHandler[Any, Any] = make(served, deserializer, handler.response_serializer)
    return wrapped


def _unary(handler: grpc.RpcMethodHandler[Any, Any], method: str) -> grpc.RpcMethodHandler[Any, Any]:
    serve: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary
    make: Any = (
        grpc.stream_unary_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_unary_rpc_method_handler
    )

    deserializer, parse = _parsing(handler)

    async def unary(request: Any, context: Any) -> Any:
        try:
            return await serve(parse(request), context)
        except _NO_HANDLING:
            raise
        except Exception as error:
            return await _abort(context, method, error)

    wrapped: grpc.RpcMethodHandler[Any, Any] = make(unary, deserializer, handler.response_serializer)
    return wrapped


def _parsing(handler: grpc.RpcMethodHandler[Any, Any]) -> tuple[Any, Callable[[Any], Any]]:
    """A deserializer for gRPC, and what is left to do with what it gives.

    gRPC answers a single request that it cannot read with UNKNOWN, so here it is read after gRPC.
    """
    read = handler.request_deserializer
    if handler.request_streaming or read is None:
        return read, lambda request: request

    def parse(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError as error:
            raise InvalidArgumentError.of(
                "(request)", f"cannot be read ({error}); send what the proto file says, text in UTF-8"
            ) from None

    return None, parse


async def _abort(context: Any, method: str, error: Exception) -> None:
    # So say generated base classes of a method that their servicer leaves out.
    if isinstance(error, NotImplementedError) and context.code() is grpc.StatusCode.UNIMPLEMENTED:
        error = UnimplementedError(f"this server does not serve {method}")
    elif not isinstance(error, PlauditError):
        incident = secrets.token_hex(6)
        log.exception("unexpected error in a servicer", method=method, incident=incident)
        error = InternalError(f"unexpected error; the service's log has it under incident {incident}")
    status = rpc_status.to_status(status_of(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
