"""What is run in the sandbox, and on what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaudit.types.scoring import FinishReason, Prompt
from reward_service._item import Item


@dataclass(frozen=True, slots=True)
class Program:
    """A source and how its function is called. Equal programs share their workers.

    `function` and `format` are None where the source says. `batch_size` is the most completions in a call,
    `timeout` what a call may take, in seconds.
    """

    source: str
    filename: str
    function: str | None
    format: str | None
    form: str
    batch_size: int
    timeout: float
    with_prefill: bool
    with_special_tokens: bool = False

    def load_request(self) -> bytes:
        """The frame that loads it."""
        fields = ("source", "filename", "function", "format", "form")
        return json.dumps({"load": {name: getattr(self, name) for name in fields}}).encode()

    def run_request(self, items: Sequence[Item[Any]]) -> bytes:
        """The frame that calls it on `items`; a prompt that several have travels once."""
        places: dict[int, int] = {}
        prompts: list[dict[str, Any]] = []
        rows: list[list[Any]] = []
        for item in items:
            place = places.get(id(item.prompt))
            if place is None:
                place = places[id(item.prompt)] = len(prompts)
                prompts.append(_prompt(item.prompt))
            rows.append(
                [
                    place,
                    self._text(item),
                    item.completion.token_count,
                    item.completion.finish_reason is FinishReason.LENGTH,
                    item.step,
                ]
            )
        return json.dumps({"size": self.batch_size, "prompts": prompts, "items": rows}).encode()

    def _text(self, item: Item[Any]) -> str:
        completion = item.completion
        # It has no raw text where both are the same.
        text = (self.with_special_tokens and completion.raw_text) or completion.text
        return completion.prefill + text if self.with_prefill else text


@dataclass(frozen=True, slots=True)
class Signature:
    """What was found in a program that loaded."""

    name: str
    format: str
    required_columns: tuple[str, ...]


class ProgramRefused(Exception):  # a finding about the source, told to its author
    """The source gives no reward function; the message names the line."""


def _prompt(prompt: Prompt) -> dict[str, Any]:
    return {
        "turns": [[turn.role, turn.content] for turn in prompt.messages],
        "columns": dict(prompt.columns),
    }
