"""Hostile text in a judge's prompt: between marks that it cannot know, what imitates a mark broken."""

from __future__ import annotations

import secrets
from typing import Any, Final

import re2

_IMITATIONS: Final[Any] = re2.compile(
    # our own marks, with or without a nonce
    r"(?i)<{2,}[ \t]*/?[ \t]*(?:begin|end|task|reference|answer)"
    # turns of chat templates, which an endpoint may read as such
    r"|<\|[^|\n]{0,64}\|>|<\x{ff5c}[^\x{ff5c}\n]{0,64}\x{ff5c}>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS)\]|<</?SYS>>"
    r"|</?(?:s|bos|eos|pad|start_of_turn|end_of_turn|start_of_role|end_of_role|im_start|im_end)>"
)
_BREAK: Final = " "


def new_nonce() -> str:
    """A word that nobody who wrote a text could know."""
    return secrets.token_hex(12)


def fenced(name: str, text: str, nonce: str) -> str:
    """`text` between marks that carry `nonce`."""
    return f"<<<{name} {nonce}>>>\n{neutral(text)}\n<<<END {name} {nonce}>>>"


def neutral(text: str) -> str:
    """`text` in which what imitates a mark, or a turn of a chat template, has blanks put into it."""
    return str(_IMITATIONS.sub(_broken, text))


def _broken(match: Any) -> str:
    return "".join(character + _BREAK if character in "<[" else character for character in match.group(0))
