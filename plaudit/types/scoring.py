"""What goes to a reward and what comes back, as plain data: the domain side of plaudit.reward.v1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

PROTOCOL_VERSION: Final = 1
"""Behaviour revision of plaudit.reward.v1 that scorer and kit speak."""

JsonScalar: TypeAlias = str | int | float | bool | None
JsonValue: TypeAlias = "JsonScalar | list[JsonValue] | dict[str, JsonValue]"


class Purpose(StrEnum):
    """What scores are for."""

    TRAIN = "train"
    EVAL = "eval"
    PREFLIGHT = "preflight"


class FinishReason(StrEnum):
    """Why sampling stopped."""

    UNKNOWN = "unknown"
    STOP = "stop"
    LENGTH = "length"


class FailureCode(StrEnum):
    """Why something was not scored; the words of reward.v1's Failure.Code."""

    INVALID = "invalid"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"
    CONFLICT = "conflict"
    LIMIT_EXCEEDED = "limit_exceeded"
    INTERNAL = "internal"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One chat turn."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A row of the dataset as a reward sees it.

    `messages` holds the chat turns (a plain text prompt is one turn of role "user"); `columns` every other
    column with the type that the row had; `text` the prompt exactly as the model read it.
    """

    group_id: str
    messages: tuple[ChatMessage, ...]
    columns: Mapping[str, JsonValue] = field(default_factory=dict)
    text: str = ""


class Completion(NamedTuple):
    """One sampled completion. `token_count` is in tokens of the policy's tokenizer.

    A tuple, as a run makes one for every text: a frozen dataclass takes twice the time.
    """

    completion_id: str
    text: str
    token_count: int = 0
    finish_reason: FinishReason = FinishReason.UNKNOWN
    prefill: str = ""
    raw_text: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """A reward value, finite."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The reward does not apply to this row; it is left out of the weighted sum."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be scored. `retry_delay` is in seconds, and set only where a retry can help."""

    code: FailureCode
    message: str
    retry_delay: float | None = None


Outcome: TypeAlias = Scored | NotApplicable | Failed


@dataclass(frozen=True, slots=True)
class Examples:
    """Texts for one prompt whose worth is known, each the whole turn of the assistant's.

    `good` ought to get the best score that the reward gives, `bad` less than these.
    """

    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
