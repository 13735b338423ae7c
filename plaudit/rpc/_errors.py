"""The one mapping between Plaudit's errors and gRPC statuses with google.rpc details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from plaudit import errors
from plaudit.rpc._durations import duration_seconds

ERROR_DOMAIN: Final = "plaudit"

NO_FIELD: Final = "(request)"
"""The field of an invalid argument whose server named none."""

# A status travels in the trailers, and a client that says nothing takes 8 KiB of them: what is above is lost
# whole. The message travels twice, once in the details.
_MAX_MESSAGE_BYTES: Final = 1_500
_MAX_VIOLATIONS_BYTES: Final = 4_500

_CODES: Final[dict[type[errors.PlauditError], grpc.StatusCode]] = {
    errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.FailedPreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.AbortedError: grpc.StatusCode.ABORTED,
    errors.ResourceExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.OutOfRangeError: grpc.StatusCode.OUT_OF_RANGE,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlineExceededError: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.UnimplementedError: grpc.StatusCode.UNIMPLEMENTED,
    errors.InternalError: grpc.StatusCode.INTERNAL,
}
_CLASSES: Final = {code: cls for cls, code in _CODES.items()}


def code_of(error: errors.PlauditError) -> grpc.StatusCode:
    """The status code under which an error travels."""
    return next((code for cls, code in _CODES.items() if isinstance(error, cls)), grpc.StatusCode.INTERNAL)


def status_of(error: errors.PlauditError) -> status_pb2.Status:
    """The google.rpc.Status of an error: ErrorInfo always, BadRequest and RetryInfo where they apply."""
    details: list[any_pb2.Any] = []

    def add(detail: Message) -> None:
        packed = any_pb2.Any()
        packed.Pack(detail)
        details.append(packed)

    metadata = {"field": error.field} if isinstance(error, errors.NotFoundError) else {}
    add(error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=metadata))
    if isinstance(error, errors.InvalidArgumentError):
        add(error_details_pb2.BadRequest(field_violations=_violations_that_fit(error.violations)))
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(error.retry_after * 1000))
        add(error_details_pb2.RetryInfo(retry_delay=delay))
    name = code_of(error).name
    return status_pb2.Status(
        code=code_pb2.Code.Value(name), message=_message_that_fits(error.message), details=details
    )


def _violations_that_fit(
    violations: Sequence[errors.FieldViolation],
) -> list[error_details_pb2.BadRequest.FieldViolation]:
    told = []
    room = _MAX_VIOLATIONS_BYTES
    for index, violation in enumerate(violations):
        field, message = _sendable(violation.field), _sendable(violation.message)
        room -= len(field.encode()) + len(message.encode())
        if room < 0:
            rest = len(violations) - index
            field, message = NO_FIELD, f"{rest} more are wrong; mend these first"
        told.append(error_details_pb2.BadRequest.FieldViolation(field=field, description=message))
        if room < 0:
            break
    return told


def _message_that_fits(message: str) -> str:
    message = _sendable(message)
    # On the wire a byte that is not printable ASCII takes three.
    size = 0
    for index, character in enumerate(message):
        size += 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if size > _MAX_MESSAGE_BYTES:
            return f"{message[:index]}…"
    return message


def _sendable(text: str) -> str:
    """`text` where half of a surrogate pair, which UTF-8 does not have, is written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_STATUS_LOST: Final = "Internal error from Core"
"""What grpc.aio's client puts in place of the status where the other side ended a stream that was still being
written (grpc issue 36066).
"""


def error_from_rpc(failure: grpc.RpcError, *, target: str = "") -> errors.PlauditError:
    """Our error of a failed call. `target` is what was called, for messages of calls that never arrived."""
    code = failure.code()
    cls = _CLASSES.get(code)
    message = failure.details() or code.name
    reason: str | None = None
    field = "id"
    retry_after: float | None = None
    violations: list[errors.FieldViolation] = []
    for detail in _details_of(failure):
        match detail:
            case error_details_pb2.ErrorInfo():
                reason, field = detail.reason, detail.metadata.get("field", "id")
            case error_details_pb2.BadRequest():
                violations = [errors.FieldViolation(v.field, v.description) for v in detail.field_violations]
            case error_details_pb2.RetryInfo():
                retry_after = duration_seconds(detail.retry_delay)
    if cls is errors.InvalidArgumentError:
        return errors.InvalidArgumentError(
            violations or [errors.FieldViolation(NO_FIELD, message)], reason=reason
        )
    if cls is errors.NotFoundError:
        return errors.NotFoundError(message, field=field, reason=reason)
    if cls is errors.UnavailableError and reason is None and target:
        message = f"{target} cannot be reached ({message}); is it running?"
    if cls is errors.DeadlineExceededError and reason is None and target:
        message = f"{target} did not answer in time ({message}); it is busy or hangs, and may yet do it"
    if cls is errors.UnimplementedError and reason is None and target:
        message = f"{target} does not know this call; is it another service, or older than this client?"
    if cls is errors.InternalError and reason is None and message == _STATUS_LOST:
        return errors.UnavailableError(
            f"{target or 'the service'} ended the call while it was being sent to, and its reason was lost; "
            "check the token and the size of what is sent, and try again",
            reason="STATUS_LOST",
        )
    if cls is None:
        return errors.PlauditError(f"{code.name}: {message}", reason=reason or code.name)
    return cls(message, reason=reason, retry_after=retry_after)


_Detail: TypeAlias = error_details_pb2.ErrorInfo | error_details_pb2.BadRequest | error_details_pb2.RetryInfo


def _details_of(failure: grpc.RpcError) -> list[_Detail]:
    """What the trailers hold of google.rpc.Status: other people's servers may send none, or junk."""
    try:
        status = _status_in(failure)
        return [] if status is None else [known for any_ in status.details for known in _unpacked(any_)]
    except Exception:
        return []


def _unpacked(detail: any_pb2.Any) -> Iterator[_Detail]:
    for known in (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.BadRequest(),
        error_details_pb2.RetryInfo(),
    ):
        if detail.Unpack(known):
            yield known


def _status_in(failure: grpc.RpcError) -> status_pb2.Status | None:
    if not isinstance(failure, grpc.aio.AioRpcError):
        return rpc_status.from_call(failure)
    for key, value in failure.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return status_pb2.Status.FromString(value)
    return None
