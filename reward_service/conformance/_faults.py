"""What can be wrong on a stream."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Fault(Enum):
    """What can be wrong on a stream."""

    UNREADABLE = "a frame that cannot be read"
    EMPTY_RESULTS = "a results frame without results"
    UNASKED = "a form of results that was not asked for"
    UNEVEN = "ids and scores that are not as many"
    BEFORE_OPENED = "a frame before opened"
    NOT_A_DURATION = "a length of time that is none"
    OPENED_AGAIN = "a second opened frame"
    FLOOD = "far more frames than were asked for"
    REJECTED = "a batch that was refused"
    ANSWERED_REJECTED = "answers to a batch that was refused"
    UNKNOWN_ID = "ids that were not sent"
    DOUBLED = "a second result"
    MISSING = "no result"
    NO_OUTCOME = "a result without an outcome"
    NOT_A_VALUE = "a value that is not allowed"
    LONG_TEXT = "a text that is too long"
    BAD_METRIC = "a metric that is not finite"
    NO_DONE = "no done"
    DONE_TWICE = "a second done"
    DONE_COUNTS = "counts that do not add up"
    AFTER_DONE = "a result after done"


JOINING: Final = frozenset(
    {Fault.UNKNOWN_ID, Fault.DOUBLED, Fault.MISSING, Fault.AFTER_DONE, Fault.DONE_COUNTS, Fault.DONE_TWICE}
)
"""Faults that bring one another about: a result under a wrong id is missing under the right one."""
