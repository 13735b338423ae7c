"""What an endpoint is asked and answers, whoever makes it."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, Protocol

from plaudit.types.validation import shown

_MESSAGE_CHARS: Final = 400
_OUT_OF_CREDIT: Final = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"})
_MOST_TOKENS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `schema` is None where the form of the answer is asked for in the prompt alone."""

    system: str
    user: str
    schema: Mapping[str, Any] | None
    temperature: float | None
    max_tokens: int
    seed: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. Tokens are None where the endpoint does not tell them, or tells what cannot be."""

    text: str
    finish: Literal["done", "length", "refusal", "malformed"]
    input_tokens: int | None
    output_tokens: int | None


class FaultKind(StrEnum):
    """Why a call brought no answer."""

    BUSY = "busy"
    """429: come back later."""
    DOWN = "down"
    """A fault of the endpoint's, or silence; another try can help."""
    UNREACHABLE = "unreachable"
    """No connection; another try can help, if the address is right."""
    REFUSED = "refused"
    """Key, model, address or credit: no call will do until a person acts."""
    REJECTED = "rejected"
    """This request will not do."""


class EndpointFaultError(Exception):
    """A call brought no answer."""

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        retry_after: float | None = None,
        may_have_cost: bool = False,
        is_silence: bool = False,
    ) -> None:
        """`retry_after` is in seconds, where the endpoint named it. `may_have_cost`: it may bill the call.

        `is_silence`: nothing came within the time of a call.
        """
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        self.may_have_cost = may_have_cost
        self.is_silence = is_silence


class Provider(Protocol):
    """Speaks to one endpoint. Its own retries are off: the layer above is the one that retries."""

    async def complete(self, request: Request, key: str) -> Reply:
        """One call with `key` ("" without one). Raises EndpointFaultError."""

    async def close(self) -> None:
        """Closes connections."""


def fault_of_status(status: int, headers: Mapping[str, str], body: object) -> EndpointFaultError:
    """The fault that an HTTP status tells."""
    message = f"HTTP {status}{_said(body)}"
    if 300 <= status < 400:
        place = shown(headers.get("location", ""))
        message = (
            f"HTTP {status}, a redirect to {place}; redirects are not followed, since they would carry the "
            "key elsewhere: give the profile the address that answers as its base_url"
        )
    if status == 429 and _code_of(body) not in _OUT_OF_CREDIT:
        return EndpointFaultError(FaultKind.BUSY, message, retry_after=retry_after(headers))
    if status in (401, 402, 403, 404, 405, 410, 429) or 300 <= status < 400:
        return EndpointFaultError(FaultKind.REFUSED, message)
    if status in (408, 409, 425) or status >= 500:
        return EndpointFaultError(FaultKind.DOWN, message, retry_after=retry_after(headers))
    return EndpointFaultError(FaultKind.REJECTED, message)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds after which the endpoint wants to be asked again; None where it does not say."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    parsed = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())


def token_count(value: object) -> int | None:
    """A number of tokens as an endpoint tells it; None where it can be no such number."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS:
        return value
    return None


def _error_in(body: object) -> object:
    return body.get("error", body) if isinstance(body, Mapping) else body


def _code_of(body: object) -> object:
    error = _error_in(body)
    return (error.get("code") or error.get("type")) if isinstance(error, Mapping) else None


def _said(body: object) -> str:
    error = _error_in(body)
    said = (error.get("message") or error) if isinstance(error, Mapping) else error
    if not said:
        return ""
    text = " ".join((said if isinstance(said, str) else shown(said)).split())
    text = text.encode("utf-8", "replace").decode("utf-8")
    return f": {text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + '…'}"
