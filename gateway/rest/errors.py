"""The one mapping of Plaudit's errors to HTTP: a status, and an envelope with the words that gRPC has too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from plaudit import errors
from plaudit.types.validation import shown

_STATUSES: Final[dict[type[errors.PlauditError], int]] = {
    errors.InvalidArgumentError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.AlreadyExistsError: HTTPStatus.CONFLICT,
    errors.FailedPreconditionError: HTTPStatus.BAD_REQUEST,
    errors.AbortedError: HTTPStatus.CONFLICT,
    errors.ResourceExhaustedError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.OutOfRangeError: HTTPStatus.GONE,
    errors.UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    errors.PermissionDeniedError: HTTPStatus.FORBIDDEN,
    errors.UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DeadlineExceededError: HTTPStatus.GATEWAY_TIMEOUT,
    errors.UnimplementedError: HTTPStatus.NOT_IMPLEMENTED,
    errors.InternalError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_STATUSES_OF_REASONS: Final[dict[str, int]] = {
    "IN_USE": HTTPStatus.CONFLICT,
    "REQUEST_ID_REUSED": HTTPStatus.CONFLICT,
    "BODY_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "UPLOAD_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "DISK_FULL": HTTPStatus.INSUFFICIENT_STORAGE,
}
"""Reasons that HTTP tells apart where gRPC has one code."""

_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

PAGE_FIELDS: Final[Mapping[str, str]] = {"page_token": "after", "page_size": "limit"}
"""What lists of jobs and datasets call the fields of a page in gRPC, and in REST."""

_RETRY_AFTER_SECONDS: Final = 1.0
"""Told with every 503 whose error says nothing."""


def status_of(error: errors.PlauditError) -> int:
    """The HTTP status of an error."""
    by_class = (status for cls, status in _STATUSES.items() if isinstance(error, cls))
    return _STATUSES_OF_REASONS.get(error.reason) or next(by_class, HTTPStatus.INTERNAL_SERVER_ERROR)


def response_of(error: errors.PlauditError) -> JSONResponse:
    """The answer to a request that failed."""
    status = status_of(error)
    retry_after = error.retry_after
    if retry_after is None and status == HTTPStatus.SERVICE_UNAVAILABLE:
        retry_after = _RETRY_AFTER_SECONDS
    body = _body(status, error.reason, error.message)
    if isinstance(error, errors.InvalidArgumentError):
        body["errors"] = [{"param": v.field, "message": v.message} for v in error.violations]
        body["param"] = error.violations[0].field if error.violations else None
    elif isinstance(error, errors.NotFoundError):
        body["param"] = error.field
    headers = {}
    if isinstance(error, errors.UnauthenticatedError):
        headers["WWW-Authenticate"] = 'Bearer realm="plaudit"'
    if retry_after is not None:
        body["retry_after_seconds"] = retry_after
        headers["Retry-After"] = str(math.ceil(retry_after))
    return JSONResponse({"error": _sendable(body)}, status, headers)


@contextmanager
def fields_named(names: Mapping[str, str]) -> Iterator[None]:
    """Within: violations name fields of the request as REST has them, by the name that the domain has."""
    try:
        yield
    except errors.InvalidArgumentError as error:
        renamed = [errors.FieldViolation(names.get(v.field, v.field), v.message) for v in error.violations]
        raise errors.InvalidArgumentError(renamed, reason=error.reason) from None
    except errors.NotFoundError as error:
        field = names.get(error.field, error.field)
        raise errors.NotFoundError(error.message, field=field, reason=error.reason) from None


def add_error_handlers(app: FastAPI) -> None:
    """Makes every failure of `app` answer with the envelope."""
    app.add_exception_handler(errors.PlauditError, _on_plaudit_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_parameters)
    app.add_exception_handler(HTTPException, _on_http_error)


async def _on_plaudit_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.PlauditError)
    return response_of(error)


async def _on_wrong_parameters(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return response_of(errors.InvalidArgumentError([_violation(detail) for detail in error.errors()]))


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    message = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {request.url.path}; GET /openapi.json lists what is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not possible at {request.url.path}; "
        "GET /openapi.json lists what is",
    }.get(status, str(error.detail))
    body = _body(status, status.name, message)
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework tells the methods of one of the routes at the address.
        headers["Allow"] = ", ".join(_methods_at(request))
    return JSONResponse({"error": _sendable(body)}, status, headers)


def _methods_at(request: Request) -> list[str]:
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


def _violation(detail: dict[str, Any]) -> errors.FieldViolation:
    # The first part of the location says where the parameter stands: path, query or header.
    field = _path(detail["loc"][1:])
    if detail["type"] == "missing":
        return errors.FieldViolation(field, "is missing")
    if detail["type"] == "extra_forbidden":
        return errors.FieldViolation(
            # Its value may be a secret that was put there by mistake.
            field,
            "there is no such parameter; leave it out",
        )
    message: str = detail["msg"].removeprefix("Value error, ")
    return errors.FieldViolation(
        field, f"{shown(detail['input'])} is refused: {message[:1].lower()}{message[1:]}"
    )


def _path(location: Sequence[int | str]) -> str:
    """`status[0]` of ("status", 0): as paths of bodies are written."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return path.removeprefix(".") or "(request)"


def _body(status: int, code: str, message: str) -> dict[str, Any]:
    kind = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    return {"type": kind, "code": code, "message": message, "param": None, "errors": []}


def _sendable(value: Any) -> Any:
    """`value` where half of a surrogate pair, which UTF-8 does not have, is written as an escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {name: _sendable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_sendable(inner) for inner in value]
    return value
