"""Lists, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from plaudit.errors import InvalidArgumentError

LARGEST_PAGE: Final = 500

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items, and the token that continues after them; "" where these are the last."""

    items: Sequence[Item]
    next_page_token: str = ""


def page_size(limit: int, default: int) -> int:
    """How many items a page has: 0 is the default, and none has more than LARGEST_PAGE.

    Raises InvalidArgumentError for a limit below 0.
    """
    if limit < 0:
        raise InvalidArgumentError.of("page_size", f"{limit} is below 0; leave it out for {default}")
    return min(limit or default, LARGEST_PAGE)
