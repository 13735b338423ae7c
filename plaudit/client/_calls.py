"""One way to call the gateway: deadline, retry where a retry is safe, our errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import grpc
import stamina

from plaudit.errors import PlauditError, ResourceExhaustedError, UnavailableError
from plaudit.rpc import error_from_rpc

Request = TypeVar("Request")
Response = TypeVar("Response")

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
DEFAULT_RETRY_SECONDS: Final = 20.0


def _may_repeat(error: Exception) -> bool:
    if isinstance(error, UnavailableError):
        return True
    return isinstance(error, ResourceExhaustedError) and error.retry_after is not None


class Caller:
    """Calls methods of one gateway; every call that is made through it may be repeated."""

    def __init__(self, target: str, timeout_seconds: float, retry_seconds: float) -> None:
        self._target = target
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds

    def call(self, method: Callable[..., Response], request: object) -> Response:
        """Calls a unary method, and again for up to `retry_seconds` where the gateway was not there."""
        for attempt in stamina.retry_context(
            on=_may_repeat, attempts=None, timeout=self._retry_seconds, wait_max=2.0
        ):
            with attempt:
                return self.call_once(method, request)
        raise AssertionError("retry_context ends by returning or raising")

    def call_once(self, method: Callable[..., Response], request: object) -> Response:
        """Calls a unary or client-streaming method once."""
        try:
            return method(request, timeout=self._timeout_seconds)
        except grpc.RpcError as failure:
            raise self.error(failure) from None

    def error(self, failure: grpc.RpcError) -> PlauditError:
        """Our error of a failed call, naming the gateway where it could not be reached."""
        return error_from_rpc(failure, target=f"the gateway at {self._target}")
