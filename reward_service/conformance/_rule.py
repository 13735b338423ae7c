"""What a rule is, and what can come of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from reward_service.conformance._run import Run

DEFAULT_PATIENCE: Final = 8.0


class Level(Enum):
    """Whether a server must keep a rule."""

    REQUIRED = "required"
    OPTIONAL = "optional"


class Need(Enum):
    """What must have gone well before a rule can be checked."""

    NOTHING = "nothing"
    INFO = "GetServerInfo"
    TALK = "a plain conversation"


class Status(Enum):
    """What came of a rule."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    SKIPPED = "skipped"
    ERROR = "error"


class Broken(Exception):
    """The server broke the rule.

    `found` says how, `exchange` are the last frames that were sent and seen, `way_out` replaces that of the
    rule where more is known.
    """

    def __init__(self, found: str, exchange: Sequence[str] = (), way_out: str = "") -> None:
        super().__init__(found)
        self.found = found
        self.exchange = tuple(exchange)
        self.way_out = way_out


class Skipped(Exception):
    """The rule does not apply to this server, or to this run; the message says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract.

    `sentence` is quoted from the contract, `way_out` is for the author of a server that breaks it. `check`
    raises Broken or Skipped, and may return a note. `patience` is how many times the timeout the whole check
    may take.
    """

    id: str
    name: str
    level: Level
    sentence: str
    way_out: str
    check: Check
    need: Need
    patience: float


Check: TypeAlias = "Callable[[Run], Awaitable[str | None]]"


def required(
    id: str,
    name: str,
    sentence: str,
    way_out: str,
    *,
    need: Need = Need.TALK,
    patience: float = DEFAULT_PATIENCE,
) -> Callable[[Check], Rule]:
    """Makes a check a rule that every server must keep."""
    return lambda check: Rule(id, name, Level.REQUIRED, sentence, way_out, check, need, patience)


def optional(
    id: str,
    name: str,
    sentence: str,
    way_out: str,
    *,
    need: Need = Need.TALK,
    patience: float = DEFAULT_PATIENCE,
) -> Callable[[Check], Rule]:
    """Makes a check a rule that a server may keep."""
    return lambda check: Rule(id, name, Level.OPTIONAL, sentence, way_out, check, need, patience)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a rule, in `seconds`. `text` is a note, the finding, or the reason of a skip."""

    rule: Rule
    status: Status
    text: str
    seconds: float
    exchange: Sequence[str] = ()
    way_out: str = ""
