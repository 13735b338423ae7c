"""Server interceptors: errors become statuses here, and nowhere else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import structlog
from grpc_status import rpc_status

from plaudit.errors import InternalError, PlauditError
from plaudit.rpc._errors import status_of

log = structlog.get_logger(__name__)

_NO_HANDLING = (asyncio.CancelledError, grpc.aio.AbortError)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns a PlauditError of a servicer into its status, and anything else into INTERNAL with an id."""

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

    async def streaming(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            # Closed at once where the client breaks off, so that the servicer lets go of what it holds.
            async with aclosing(serve(request, context)) as responses:
                async for response in responses:
                    yield response
        except _NO_HANDLING:
            raise
        except Exception as error:
            await _abort(context, method, error)

    wrapped: grpc.RpcMethodHandler[Any, Any] = make(
        streaming, handler.request_deserializer, handler.response_serializer
    )
    return wrapped


def _unary(handler: grpc.RpcMethodHandler[Any, Any], method: str) -> grpc.RpcMethodHandler[Any, Any]:
    serve: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary
    make: Any = (
        grpc.stream_unary_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_unary_rpc_method_handler
    )

    async def unary(request: Any, context: Any) -> Any:
        try:
            return await serve(request, context)
        except _NO_HANDLING:
            raise
        except Exception as error:
            return await _abort(context, method, error)

    wrapped: grpc.RpcMethodHandler[Any, Any] = make(
        unary, handler.request_deserializer, handler.response_serializer
    )
    return wrapped


async def _abort(context: Any, method: str, error: Exception) -> None:
    if not isinstance(error, PlauditError):
        incident = secrets.token_hex(6)
        log.exception("unexpected error in a servicer", method=method, incident=incident)
        error = InternalError(f"unexpected error; the service's log has it under incident {incident}")
    status = rpc_status.to_status(status_of(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
