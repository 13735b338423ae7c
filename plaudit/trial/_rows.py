"""Rows to try a reward on, from JSON lines: wrong ones named, and probes where there are no completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.scoring._convert import prompt_message, valid_text
from plaudit.types.scoring import ChatMessage, JsonValue, Prompt
from plaudit.types.validation import json_fault, load_json, shown

COMPLETION_COLUMNS: Final = ("completions", "completion")
ANSWER_COLUMNS: Final = ("answer", "solution", "label", "target", "ground_truth")

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of one completion with its prompt and columns."""

_MOST_FAULTS: Final = 20
_LONG_TEXT: Final = "the answer is the answer that is the answer. " * 100


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A row of the file: its line, its prompt with the other columns, and the completions to score."""

    line: int
    prompt: Prompt
    completions: tuple[str, ...]
    are_probes: bool
    """Whether the completions are ours, as the row brought none."""


def read_rows(path: Path, completions_column: str | None, most: int) -> list[TrialRow]:
    """The first `most` rows of a file of JSON lines.

    Raises InvalidArgumentError that names each line that cannot be used.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgumentError.of("rows", f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError.of("rows", f"{path} is no UTF-8 text: {error}") from None
    columns = COMPLETION_COLUMNS if completions_column is None else (completions_column,)
    rows: list[TrialRow] = []
    faults: list[FieldViolation] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if len(rows) + len(faults) >= most:
            break
        try:
            rows.append(_row(number, line, columns, needs_column=completions_column is not None))
        except ValueError as error:
            faults.append(FieldViolation(f"{path}:{number}", str(error)))
    if not rows and not faults:
        faults.append(FieldViolation(str(path), "holds no rows; a row is one JSON object a line"))
    if len(faults) > _MOST_FAULTS:
        more = FieldViolation(str(path), f"{len(faults) - _MOST_FAULTS} more lines are wrong")
        faults = [*faults[:_MOST_FAULTS], more]
    if faults:
        raise InvalidArgumentError(faults)
    return rows


def answer_of(prompt: Prompt) -> str | None:
    """What the row says is right, as text."""
    for name in ANSWER_COLUMNS:
        value = prompt.columns.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
    return None


def _row(number: int, line: str, columns: Sequence[str], *, needs_column: bool) -> TrialRow:
    try:
        row = load_json(line)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"{shown(row)} is no JSON object; a row is one, with a prompt")
    fault = json_fault(row)
    if fault is not None:
        raise ValueError(fault)
    for name, value in row.items():
        if not _is_finite(value):
            raise ValueError(
                f"{shown(name)} is {shown(value)}, and JSON has neither NaN nor infinities; write null, or "
                "leave the row out"
            )
    if "prompt" not in row:
        raise ValueError(f"has no prompt; it has {', '.join(row) or 'nothing'}")
    messages = tuple(_messages(row["prompt"]))
    found = next((name for name in columns if name in row), None)
    if found is None and needs_column:
        raise ValueError(f"has no column {columns[0]}; it has {', '.join(row)}")
    others: Mapping[str, JsonValue] = {
        name: value for name, value in row.items() if name not in ("prompt", *COMPLETION_COLUMNS, found)
    }
    text = messages[0].content if isinstance(row["prompt"], str) else ""
    prompt = Prompt(f"row-{number}", messages, others, text)
    completions = tuple(_completions(row[found], found)) if found is not None else ()
    longest = max((len(valid_text(text).encode()) for text in completions), default=0)
    if prompt_message(prompt).ByteSize() + longest > MOST_BYTES:
        raise ValueError(
            f"takes more than {MOST_BYTES >> 20} MiB with its longest completion; a message to the reward "
            "holds no more"
        )
    return TrialRow(number, prompt, completions or _probes(prompt), are_probes=not completions)


def _is_finite(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _messages(prompt: Any) -> Iterator[ChatMessage]:
    if isinstance(prompt, str):
        yield ChatMessage("user", valid_text(prompt))
        return
    if not isinstance(prompt, list) or not prompt:
        raise ValueError(f"prompt is {shown(prompt)}; it is a text, or a list of messages")
    for turn in prompt:
        yield _message(turn, "prompt")


def _message(turn: Any, where: str) -> ChatMessage:
    if not isinstance(turn, dict) or not all(isinstance(turn.get(name), str) for name in ("role", "content")):
        raise ValueError(f'{where} holds {shown(turn)}; a message is {{"role": text, "content": text}}')
    return ChatMessage(turn["role"], turn["content"])


def _completions(value: Any, name: str) -> Iterator[str]:
    # A chat's completion is a list of messages, as TRL's is; a list of texts is several completions.
    values = value if isinstance(value, list) and not _is_chat(value) else [value]
    for one in values:
        if isinstance(one, str):
            yield one
        elif _is_chat(one):
            yield _message(one[-1], name).content
        else:
            raise ValueError(f"{name} holds {shown(one)}; a completion is a text, or a list of messages")


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)


def _probes(prompt: Prompt) -> tuple[str, ...]:
    answer = answer_of(prompt)
    fixed = ("", "I do not know.", _LONG_TEXT)
    if answer is None:
        return fixed
    return (
        *fixed,
        answer,
        f"<think>Let me see.</think><answer>{answer}</answer>",
        f"The answer is \\boxed{{{answer}}}.",
        json.dumps({"answer": answer}),
    )
