"""The shapes that rows come in: a prompt to answer, or an answer to imitate, in the forms that are common.

| row | becomes |
| --- | --- |
| `prompt` | as it is; with a text in `completion` it can be imitated too |
| `messages`, the last of the assistant | the turns before it are the prompt; `messages` stays |
| `conversations` (ShareGPT: `from`, `value`) | `messages` |
| `instruction`, `input`, `output` (Alpaca) | a prompt of the first two, `completion` of the third |
| `text` | no prompt: it can be imitated, and not answered |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.datasets.faults import WrongRowError
from plaudit.types.validation import shown

ROLES: Final = ("system", "developer", "user", "assistant", "tool")

GRPO: Final = frozenset({"grpo"})
SFT: Final = frozenset({"sft"})

_SHAREGPT_ROLES: Final[Mapping[str, str]] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "tool": "tool",
}


def with_prompt(row: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """The row with a column `prompt`, and the training methods that it serves."""
    for column, convert in _SHAPES:
        if column in row:
            return convert(row)
    raise WrongRowError(
        f'the row has no "prompt" (its columns: {shown(sorted(row))}); add it, as text or as '
        "a list of messages"
    )


def _prompted(row: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    _check_prompt(row["prompt"])
    completion = row.get("completion")
    if isinstance(completion, list) and len(completion) == 1:
        # One turn of the assistant is how chat data writes an answer.
        _check_turn(completion[0], "completion[0]")
        row = {**row, "completion": completion[0]["content"]}
    answered = isinstance(row.get("completion"), str) and bool(row["completion"].strip())
    return row, GRPO | SFT if answered else GRPO


def _conversation(row: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    turns = row["messages"]
    if not isinstance(turns, list) or not turns:
        raise WrongRowError(f"messages is {shown(turns)}; it must be a list of messages")
    for index, turn in enumerate(turns):
        _check_turn(turn, f"messages[{index}]")
    if turns[-1]["role"] != "assistant" or not turns[-1]["content"].strip():
        raise WrongRowError(
            "messages does not end with an answer of the assistant, which is what is learnt; end it with "
            'one, or name the column "prompt"'
        )
    if len(turns) == 1:
        raise WrongRowError("messages has nothing before the answer; begin it with a turn of the user")
    _check_prompt(turns[:-1])
    return {**row, "prompt": turns[:-1]}, GRPO | SFT


def _sharegpt(row: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    turns = row["conversations"]
    if not isinstance(turns, list) or not turns:
        raise WrongRowError(f"conversations is {shown(turns)}; it must be a list of turns")
    messages = []
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict) or not {"from", "value"} <= turn.keys():
            raise WrongRowError(f'conversations[{index}] is {shown(turn)}; a turn has "from" and "value"')
        role = _SHAREGPT_ROLES.get(turn["from"]) if isinstance(turn["from"], str) else None
        if role is None:
            raise WrongRowError(
                f"conversations[{index}].from is {shown(turn['from'])}; it must be one of "
                f"{', '.join(_SHAREGPT_ROLES)}"
            )
        messages.append({"role": role, "content": turn["value"]})
    others = {name: value for name, value in row.items() if name != "conversations"}
    return _conversation({**others, "messages": messages})


def _alpaca(row: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    for name in ("instruction", "output"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise WrongRowError(f"{name} is {shown(row.get(name))}; it must be text")
    context = row.get("input")
    if context is not None and not isinstance(context, str):
        raise WrongRowError(f"input is {shown(context)}; it must be text, or not there")
    prompt = f"{row['instruction']}\n\n{context}" if context else row["instruction"]
    return {**row, "prompt": prompt, "completion": row["output"]}, GRPO | SFT


def _plain_text(row: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    if not isinstance(row["text"], str) or not row["text"].strip():
        raise WrongRowError(f"text is {shown(row['text'])}; it must be text, and not empty")
    return {**row, "prompt": ""}, SFT


def _check_prompt(prompt: object) -> None:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise WrongRowError("the prompt is empty; write text, or a list of messages")
        return
    if not isinstance(prompt, list):
        raise WrongRowError(f"the prompt is {shown(prompt)}; it must be text or a list of messages")
    if not prompt:
        raise WrongRowError("the prompt is an empty list; it needs at least one message")
    for index, turn in enumerate(prompt):
        _check_turn(turn, f"prompt[{index}]")
    last = prompt[-1]
    if last["role"] == "assistant":
        raise WrongRowError(
            "the prompt ends with a turn of the assistant, which is what the model is to write; "
            "end it with a turn of the user"
        )
    if not last["content"].strip():
        raise WrongRowError("the last turn of the prompt is empty; write what the model is to answer")


def _check_turn(turn: object, where: str) -> None:
    if not isinstance(turn, dict):
        raise WrongRowError(f'{where} is {shown(turn)}; a message is {{"role": ..., "content": ...}}')
    missing = [name for name in ("role", "content") if name not in turn]
    if missing:
        raise WrongRowError(f'{where} has no {" and no ".join(missing)}; a message has "role" and "content"')
    unknown = sorted(turn.keys() - {"role", "content"})
    if unknown:
        raise WrongRowError(
            f'{where} has {shown(unknown[0])}, which is not honoured; a message has only "role" and "content"'
        )
    if turn["role"] not in ROLES:
        raise WrongRowError(f"{where}.role is {shown(turn['role'])}; it must be one of {', '.join(ROLES)}")
    if not isinstance(turn["content"], str):
        raise WrongRowError(f"{where}.content is {shown(turn['content'])}; it must be text")


_Shape = Callable[[dict[str, Any]], tuple[dict[str, Any], frozenset[str]]]

_SHAPES: Final[tuple[tuple[str, _Shape], ...]] = (
    ("prompt", _prompted),
    ("messages", _conversation),
    ("conversations", _sharegpt),
    ("instruction", _alpaca),
    ("text", _plain_text),
)
"""The column that tells a shape, the first that a row has."""

TELLING_COLUMNS: Final = tuple(column for column, _ in _SHAPES)
"""Columns of which a row needs one."""
