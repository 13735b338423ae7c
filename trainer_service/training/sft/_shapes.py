"""What a row of the normal form has to imitate: a conversation, a completion, or a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plaudit.types.scoring import ChatMessage
from trainer_service.training.dataset import DatasetError, DatasetRow


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns, the last of them the assistant's: every answer of the assistant is imitated."""

    messages: tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt, and the answer to it that is imitated."""

    prompt: str | tuple[ChatMessage, ...]
    completion: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is imitated whole."""

    text: str


def shape_of(row: DatasetRow) -> Conversation | Completion | Text:
    """What the row has to imitate. Raises DatasetError where that is nothing."""
    messages = _turns(row.columns.get("messages"))
    # Other rows may have a column of this name for their rewards; of a conversation the prompt is a part.
    if messages and messages[-1].role == "assistant" and row.prompt == messages[:-1]:
        return Conversation(messages)
    completion, text = row.columns.get("completion"), row.columns.get("text")
    if row.prompt and isinstance(completion, str) and completion.strip():
        return Completion(row.prompt, completion)
    if not row.prompt and isinstance(text, str) and text.strip():
        return Text(text)
    raise DatasetError(
        f"row {row.index + 1} has no answer to imitate: neither messages that end with the assistant, nor a "
        "completion to its prompt, nor a text; upload the dataset again in one of these shapes"
    )


def _turns(messages: Any) -> tuple[ChatMessage, ...]:
    """The chat turns of a column, or none where it holds something else."""
    if not isinstance(messages, list):
        return ()
    turns = [
        ChatMessage(role=turn["role"], content=turn["content"])
        for turn in messages
        if isinstance(turn, dict)
        and isinstance(turn.get("role"), str)
        and isinstance(turn.get("content"), str)
    ]
    return tuple(turns) if len(turns) == len(messages) else ()
