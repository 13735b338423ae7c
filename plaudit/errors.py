"""The errors of Plaudit: raised by domain code, mapped once to gRPC (`plaudit.rpc`) and once to REST.

Every error carries a `reason` in UPPER_SNAKE_CASE for programs and a message for people that names what
was found and the way out. The client library raises the same classes that the services raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One wrong field of a request.

    `field` is its path, for example `hyperparameters.learning_rate` or `rewards[0].weight`; `message` names
    the value that was found and the way out.
    """

    field: str
    message: str


class PlauditError(Exception):
    """Base of every error that Plaudit raises on purpose."""

    default_reason = "ERROR"

    def __init__(self, message: str, *, reason: str | None = None, retry_after: float | None = None) -> None:
        """`retry_after` is in seconds, and set only where a retry can help."""
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.retry_after = retry_after


class InvalidArgumentError(PlauditError):
    """A request is malformed. Names every wrong field at once."""

    default_reason = "INVALID_ARGUMENT"

    def __init__(self, violations: Sequence[FieldViolation], *, reason: str | None = None) -> None:
        self.violations = tuple(violations)
        super().__init__("\n".join(f"{v.field}: {v.message}" for v in self.violations), reason=reason)

    @classmethod
    def of(cls, field: str, message: str) -> InvalidArgumentError:
        """An error about a single field."""
        return cls([FieldViolation(field, message)])


class NotFoundError(PlauditError):
    """Something that was named does not exist."""

    default_reason = "NOT_FOUND"

    def __init__(self, message: str, *, field: str = "id", reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.field = field


class AlreadyExistsError(PlauditError):
    """A name is taken by something else."""

    default_reason = "NAME_TAKEN"


class FailedPreconditionError(PlauditError):
    """The request is well-formed, but the state that it found forbids it."""

    default_reason = "FAILED_PRECONDITION"


class AbortedError(PlauditError):
    """The work was ended by something newer that took its place."""

    default_reason = "ABORTED"


class ResourceExhaustedError(PlauditError):
    """A limit is reached; `retry_after` says when it may have room again."""

    default_reason = "RESOURCE_EXHAUSTED"


class OutOfRangeError(PlauditError):
    """A position in a stream is beyond what is kept."""

    default_reason = "OUT_OF_RANGE"


class UnauthenticatedError(PlauditError):
    """A credential is missing or wrong."""

    default_reason = "UNAUTHENTICATED"


class PermissionDeniedError(PlauditError):
    """The credential is good, but its role may not do this."""

    default_reason = "PERMISSION_DENIED"


class UnavailableError(PlauditError):
    """The other side is not there, or not ready; repeating the call can help."""

    default_reason = "UNAVAILABLE"


class DeadlineExceededError(PlauditError):
    """The other side did not answer in time."""

    default_reason = "DEADLINE_EXCEEDED"


class UnimplementedError(PlauditError):
    """The other side does not know this call."""

    default_reason = "UNIMPLEMENTED"


class InternalError(PlauditError):
    """A bug. The message carries the id under which it stands in the service's log."""

    default_reason = "INTERNAL"
