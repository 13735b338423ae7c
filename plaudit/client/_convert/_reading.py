"""What the gateway answers comes from another process, which may be another version, or something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar

from google.protobuf.message import Message

from plaudit.errors import InternalError
from plaudit.types.texts import one_line

MessageT = TypeVar("MessageT", bound=Message)
ReadT = TypeVar("ReadT")

_MESSAGE_LENGTH: Final = 200
_NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What times beyond all years, unknown numbers of enums, texts that are no JSON and the like end in."""


def reads_answer(read: Callable[[MessageT], ReadT]) -> Callable[[MessageT], ReadT]:
    """Makes a reader of messages raise InternalError (ANSWER_UNREADABLE) where one makes no sense."""

    @wraps(read)
    def reading(message: MessageT) -> ReadT:
        try:
            return read(message)
        except _NONSENSE as error:
            raise InternalError(
                f"the gateway's answer cannot be read ({message.DESCRIPTOR.name}: "
                f"{one_line(str(error), _MESSAGE_LENGTH)}); where gateway and client are of different "
                "versions, upgrade the older of the two",
                reason="ANSWER_UNREADABLE",
            ) from error

    return reading
