"""What all answers have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, PlainSerializer


def iso_time(time: datetime) -> str:
    """A time as REST has it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Time = Annotated[datetime, PlainSerializer(iso_time, return_type=str)]


class RestObject(BaseModel):
    """Base of what is answered."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


Entry = TypeVar("Entry", bound=RestObject)


class Listed(RestObject, Generic[Entry]):
    """A page of a list; `after=<last id>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[Entry]
    has_more: bool


class ListedByToken(Listed[Entry], Generic[Entry]):
    """A page of a list; `page_token=<next_page_token>` asks for the next."""

    next_page_token: str | None


class Deleted(RestObject):
    """Confirms that something is deleted."""

    id: str
    object: str
    deleted: Literal[True] = True


class WrongField(RestObject):
    """One wrong field of a request."""

    param: str
    message: str


class ErrorBody(RestObject):
    """Why a request failed: the words that gRPC has too."""

    type: Literal["invalid_request_error", "rate_limit_error", "api_error"]
    code: str | None
    message: str
    param: str | None
    errors: list[WrongField]
    retry_after_seconds: float | None = None


class ErrorEnvelope(RestObject):
    """The body of every failure."""

    error: ErrorBody
