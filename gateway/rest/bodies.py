"""Bodies of requests: bounded in size and time, and never trusted to be what they claim."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect, Request

from plaudit.errors import DeadlineExceededError, InvalidArgumentError, ResourceExhaustedError
from plaudit.types.validation import TOO_DEEP, json_fault, load_json, shown

MAX_JSON_BYTES: Final = 1024 * 1024
MAX_JOB_BYTES: Final = 4 * 1024 * 1024
"""Of a job, which may hold whole programs."""
IDLE_SECONDS: Final = 60.0
"""Longest wait for the next bytes of a body."""

Result = TypeVar("Result")

_MAX_DISCARDED_BYTES: Final = 64 * 1024 * 1024
_DISCARD_SECONDS: Final = 2.0


class Body:
    """The body of a request, as it comes in."""

    def __init__(self, request: Request) -> None:
        self._chunks = aiter(request.stream())

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        """The next bytes. DeadlineExceededError where they stop coming."""
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                return await anext(self._chunks)
        except TimeoutError:
            raise DeadlineExceededError(
                f"nothing came for {IDLE_SECONDS:g} s, and the request is dropped; send it again"
            ) from None

    async def discard(self) -> None:
        """Reads what the client is still sending, within bounds: a connection that is closed on a client that
        writes can take the answer with it.
        """
        left = _MAX_DISCARDED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                async for chunk in self._chunks:
                    left -= len(chunk)
                    if left < 0:
                        return


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` returns, which takes long; where the client goes away meanwhile it is cancelled, and
    ClientDisconnect raised. The body must have been read.
    """
    working = asyncio.ensure_future(work)
    going = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([working, going], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        going.cancel()
        await asyncio.wait([working, going])


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_json_object(
    request: Request, *, max_bytes: int = MAX_JSON_BYTES, optional: bool = False
) -> dict[str, Any]:
    """The JSON object in the body, whatever its Content-Type says; {} for no body where it is `optional`. NaN
    passes, so that a field's own rule refuses it by name.
    """
    body = Body(request)
    data = bytearray()
    async for chunk in body:
        data += chunk
        if len(data) > max_bytes:
            await body.discard()
            raise ResourceExhaustedError(
                f"the body is larger than {max_bytes:,} bytes, the most that is accepted here",
                reason="BODY_TOO_LARGE",
            )
    if optional and not data.strip():
        return {}
    try:
        value = load_json(data.decode("utf-8"))
    except RecursionError:
        raise InvalidArgumentError.of("(request)", f"the body {TOO_DEEP}") from None
    except ValueError as error:
        raise InvalidArgumentError.of(
            "(request)", f"the body is not JSON ({error}); send a JSON object"
        ) from None
    fault = json_fault(value)
    if fault is not None:
        raise InvalidArgumentError.of("(request)", f"the body {fault}")
    if not isinstance(value, dict):
        raise InvalidArgumentError.of("(request)", f"the body is {shown(value)}; send a JSON object")
    return value
