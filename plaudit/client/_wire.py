"""One connection to a gateway, as the resources see it, in two kinds: one that blocks, one of asyncio.

The resources are written once, as coroutines over a `Wire`. On a `BlockingWire` nothing ever suspends, so
that `plaudit.client._blocking` can step through them without an event loop.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any, Final, Protocol, TypedDict, TypeVar, cast

import grpc
import grpc.aio
import tenacity

from plaudit.errors import (
    FailedPreconditionError,
    InternalError,
    PlauditError,
    ResourceExhaustedError,
    UnavailableError,
)
from plaudit.rpc import Metadata, error_from_rpc

Result = TypeVar("Result")

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
DEFAULT_RETRY_SECONDS: Final = 20.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0
_MOST_JITTER_SECONDS: Final = 1.0


class _Page(Protocol):
    next_page_token: str


Page = TypeVar("Page", bound=_Page)


class _RetrySettings(TypedDict):
    """What tenacity takes, which is as silent as a library has to be."""

    retry: tenacity.retry_if_exception
    stop: tenacity.stop_before_delay
    wait: tenacity.wait_exponential_jitter
    reraise: bool


class Wire(ABC):
    """Calls methods of one gateway, and does what takes time besides."""

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        target: str,
        metadata: Metadata,
        timeout_seconds: float,
        retry_seconds: float,
    ) -> None:
        """`channel` is what stubs are made of; `metadata` goes with every call."""
        self.channel = channel
        self._target = target
        self._metadata = metadata
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._is_closed = False

    def close(self) -> None:
        """From now on every call is refused. The channel is its owner's to close."""
        self._is_closed = True

    @abstractmethod
    async def call(self, method: Callable[..., Result], request: object) -> Result:
        """Calls a unary method, and again for up to `retry_seconds` where the gateway was not there."""

    @abstractmethod
    async def call_once(
        self, method: Callable[..., Result], request: object, *, has_deadline: bool = True
    ) -> Result:
        """Calls a unary method that is not repeated by itself; without a deadline where its work is as long
        as its data, and keepalive ends it with a dead peer.
        """

    @abstractmethod
    async def upload(self, method: Callable[..., Result], requests: Iterable[object]) -> Result:
        """Calls a client-streaming method, without a deadline."""

    @abstractmethod
    def stream(
        self, method: Callable[..., Iterable[Result]], request: object, timeout: float | None = None
    ) -> AsyncGenerator[Result, None]:
        """The messages of a server-streaming method, which is cancelled when the generator is closed."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Waits."""

    @abstractmethod
    async def offload(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Calls what blocks on files, where it keeps nobody else waiting."""

    async def pages(self, method: Callable[..., Page], request: Any) -> AsyncIterator[Page]:
        """The pages of a list, each fetched when it is needed."""
        while True:
            page = await self.call(method, request)
            yield page
            if not page.next_page_token:
                return
            if page.next_page_token == request.page_token:
                raise InternalError(
                    "the gateway answers with the same page of a list over and over; look at its log",
                    reason="ANSWER_UNREADABLE",
                )
            request.page_token = page.next_page_token

    def _check_open(self) -> None:
        if self._is_closed:
            raise FailedPreconditionError("this client is closed; make another one", reason="CLIENT_CLOSED")

    def _error(self, failure: grpc.RpcError) -> PlauditError:
        return error_from_rpc(failure, target=f"the gateway at {self._target}")

    @property
    def _retry_settings(self) -> _RetrySettings:
        return _RetrySettings(
            retry=tenacity.retry_if_exception(_may_repeat),
            stop=tenacity.stop_before_delay(self._retry_seconds),
            wait=tenacity.wait_exponential_jitter(
                multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS, jitter=_MOST_JITTER_SECONDS
            ),
            reraise=True,
        )


def _may_repeat(error: BaseException) -> bool:
    if isinstance(error, UnavailableError):
        return True
    return isinstance(error, ResourceExhaustedError) and error.retry_after is not None


class BlockingWire(Wire):
    """Blocks its thread while it waits, and never suspends."""

    async def call(self, method: Callable[..., Result], request: object) -> Result:
        for attempt in tenacity.Retrying(**self._retry_settings):
            with attempt:
                return await self.call_once(method, request)
        raise AssertionError("tenacity ends by returning or raising")

    async def call_once(
        self, method: Callable[..., Result], request: object, *, has_deadline: bool = True
    ) -> Result:
        self._check_open()
        timeout = self._timeout_seconds if has_deadline else None
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as failure:
            raise self._error(failure) from None

    async def upload(self, method: Callable[..., Result], requests: Iterable[object]) -> Result:
        self._check_open()
        try:
            return method(iter(requests), metadata=self._metadata)
        except grpc.RpcError as failure:
            raise self._error(failure) from None

    async def stream(
        self, method: Callable[..., Iterable[Result]], request: object, timeout: float | None = None
    ) -> AsyncGenerator[Result, None]:
        self._check_open()
        call = method(request, timeout=timeout, metadata=self._metadata)
        try:
            for message in call:
                yield message
        except grpc.RpcError as failure:
            raise self._error(failure) from None
        finally:
            cast("grpc.Future[Any]", call).cancel()

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # blocking is what this wire is for

    async def offload(self, function: Callable[..., Result], *arguments: object) -> Result:
        return function(*arguments)


class AsyncWire(Wire):
    """Suspends while it waits. Its channel is one of grpc.aio, of which the stubs have the same methods."""

    async def call(self, method: Callable[..., Result], request: object) -> Result:
        async for attempt in tenacity.AsyncRetrying(**self._retry_settings):
            with attempt:
                return await self.call_once(method, request)
        raise AssertionError("tenacity ends by returning or raising")

    async def call_once(
        self, method: Callable[..., Result], request: object, *, has_deadline: bool = True
    ) -> Result:
        self._check_open()
        timeout = self._timeout_seconds if has_deadline else None
        call: Any = method(request, timeout=timeout, metadata=self._metadata)
        try:
            return cast(Result, await call)
        except grpc.RpcError as failure:
            raise self._error(failure) from None

    async def upload(self, method: Callable[..., Result], requests: Iterable[object]) -> Result:
        self._check_open()
        call: Any = method(self._read(requests), metadata=self._metadata)
        try:
            return cast(Result, await call)
        except grpc.RpcError as failure:
            raise self._error(failure) from None

    async def stream(
        self, method: Callable[..., Iterable[Result]], request: object, timeout: float | None = None
    ) -> AsyncGenerator[Result, None]:
        self._check_open()
        call: Any = method(request, timeout=timeout, metadata=self._metadata)
        try:
            async for message in call:
                yield message
        except grpc.RpcError as failure:
            raise self._error(failure) from None
        finally:
            call.cancel()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def offload(self, function: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.to_thread(function, *arguments)

    async def _read(self, requests: Iterable[object]) -> AsyncIterator[object]:
        left = iter(requests)
        end = object()
        while (request := await self.offload(next, left, end)) is not end:
            yield request
