"""Tags that are special tokens of the model's: the text that rewards read is without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import re2

from reward_service._item import Item


def tags_marks(*tags: str) -> tuple[str, ...]:
    """What opens and closes these tags."""
    return tuple(mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>"))


def turn_with_marks(item: Item[Any], marks: Sequence[str]) -> str:
    """The assistant's turn, with those of the marks that are special tokens in their places.

    Other special tokens, as the one that ends the turn, are left out; where they cannot be told from the
    text around a mark, they are left in. Linear in the text.
    """
    completion = item.completion
    text, raw_text = completion.text, completion.raw_text
    lost = [mark for mark in marks if raw_text.count(mark) > text.count(mark)]
    return completion.prefill + (_with_lost(lost, text, raw_text) if lost else text)


def _with_lost(lost: Sequence[str], text: str, raw_text: str) -> str:
    parts: list[str] = []
    in_text = in_raw = 0
    for found in re2.compile("|".join(map(re2.escape, lost))).finditer(raw_text):
        before = raw_text[in_raw : found.start()]
        if not text.startswith(before, in_text):
            return raw_text
        parts += before, found.group()
        in_text += len(before)
        in_raw = found.end()
    return "".join(parts) + text[in_text:]
