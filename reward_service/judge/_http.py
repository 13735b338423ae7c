"""The HTTP client under both SDKs: no redirects, which would carry the key elsewhere, and bounded answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
import httpx2

from reward_service.judge._provider import EndpointFaultError, FaultKind

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024

NO_KEY: Final = "none"
"""Sent where an endpoint wants no key: without any, the SDKs look for one in the environment."""


def client_options(concurrency: int, timeout: float) -> dict[str, Any]:
    """Arguments of an AsyncClient for at most `concurrency` calls of `timeout` seconds at once."""
    return {
        "timeout": httpx2.Timeout(timeout),
        "limits": httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        "follow_redirects": False,
        # What is packed could grow beyond all bounds where it is unpacked.
        "headers": {"accept-encoding": "identity"},
        "event_hooks": {"response": [_bound]},
    }


def connection_fault(error: BaseException) -> EndpointFaultError:
    """The fault of a call that found no endpoint, lost it, or was not answered in time."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__
    innermost = chain[-1]
    why = str(innermost) or type(innermost).__name__
    # By aiohttp's own words: its transport calls every loss of a connection a timeout.
    if any(isinstance(e, aiohttp.ClientConnectorError | httpx2.UnsupportedProtocol) for e in chain):
        return EndpointFaultError(FaultKind.UNREACHABLE, f"no connection ({why})")
    if any(isinstance(e, TimeoutError) for e in chain):
        return EndpointFaultError(FaultKind.DOWN, "no answer in time", may_have_cost=True, is_silence=True)
    return EndpointFaultError(FaultKind.DOWN, f"the connection broke ({why})", may_have_cost=True)


async def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise httpx2.DecodingError("the answer is packed, which was not asked for", request=response.request)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(response.stream, response.request)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, request: httpx2.Request) -> None:
        self._stream = stream
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise httpx2.ReadError(
                    f"the answer has more than {MAX_ANSWER_BYTES:,} bytes", request=self._request
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
