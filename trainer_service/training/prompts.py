"""Rows of a dataset become prompts, once, when the data is loaded: model, reward and log see the same."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import ChatMessage, JsonValue
from trainer_service.training._rollout_chat import ChatRenderer
from trainer_service.training.dataset import DatasetError, DatasetRow
from trainer_service.training.decoding import decode_completion

_JOINER = "\N{ZERO WIDTH JOINER}"


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt as it is fed to the model.

    `text` is exactly what the model reads and `token_ids` its tokens; `messages` are the chat turns (plain
    text is one turn of role "user"), shortened where `truncated`; `prefill` is what already stands at the
    start of the assistant's turn; `columns` are the row's other columns.
    """

    row_index: int
    token_ids: tuple[int, ...]
    text: str
    messages: tuple[ChatMessage, ...]
    prefill: str
    columns: Mapping[str, JsonValue]
    truncated: bool


@dataclass(frozen=True, slots=True)
class PreparedPrompts:
    """The prompts of a dataset in its order, and how many of them were shortened."""

    prompts: tuple[PreparedPrompt, ...]
    truncated_count: int


@dataclass(frozen=True, slots=True)
class MeasuredPrompts:
    """Tokens of every prompt before any is shortened, and the rows, from 0, that no shortening makes fit."""

    lengths: tuple[int, ...]
    too_long_rows: tuple[int, ...]


def measure_prompts(
    rows: Iterable[DatasetRow], tokenizer: PreTrainedTokenizerBase, *, max_prompt_length: int
) -> MeasuredPrompts:
    """Renders every row as `prepare_prompts` does, and counts. Raises DatasetError."""
    renderer = ChatRenderer(tokenizer)
    lengths: list[int] = []
    too_long: list[int] = []
    for row in rows:
        lengths.append(len(_prepare(row, renderer, sys.maxsize).token_ids))
        is_long = lengths[-1] > max_prompt_length
        if is_long and len(_prepare(row, renderer, max_prompt_length).token_ids) > max_prompt_length:
            too_long.append(row.index)
    return MeasuredPrompts(tuple(lengths), tuple(too_long))


def prepare_prompts(
    rows: Iterable[DatasetRow], tokenizer: PreTrainedTokenizerBase, *, max_prompt_length: int
) -> PreparedPrompts:
    """Renders every row with the tokenizer's chat template, at most `max_prompt_length` tokens each.

    A longer prompt loses the start of its longest user turn, whole characters, and is rendered again. Plain
    text is one user turn where there is a template, and is fed as it is where there is none.

    Raises InvalidArgumentError for a `max_prompt_length` that leaves nothing of a user turn, with one that
    works, and DatasetError for a row that the template refuses.
    """
    renderer = ChatRenderer(tokenizer)
    prompts: list[PreparedPrompt] = []
    too_long: list[tuple[int, int]] = []
    for row in rows:
        prompt = _prepare(row, renderer, max_prompt_length)
        if len(prompt.token_ids) > max_prompt_length:
            too_long.append((row.index, len(prompt.token_ids)))
        prompts.append(prompt)
    if too_long:
        raise _refusal(too_long, max_prompt_length)
    return PreparedPrompts(tuple(prompts), sum(prompt.truncated for prompt in prompts))


def _prepare(row: DatasetRow, renderer: ChatRenderer, max_prompt_length: int) -> PreparedPrompt:
    messages = (ChatMessage("user", row.prompt),) if isinstance(row.prompt, str) else row.prompt
    if isinstance(row.prompt, str) and not renderer.has_template:
        return _fitted(row, messages, lambda m: renderer.feed(m[0].content), "", max_prompt_length)
    if not renderer.has_template:
        raise DatasetError(
            f"row {row.index + 1}: the prompt is a chat, but the model's tokenizer has no chat template; "
            "give the prompts as plain text, or train a model that has one"
        )
    continued = messages[-1].role == "assistant"
    prefill = messages[-1].content if continued else renderer.prefill
    return _fitted(row, messages, renderer.render, prefill, max_prompt_length)


def _fitted(
    row: DatasetRow,
    messages: tuple[ChatMessage, ...],
    render: Callable[[Sequence[ChatMessage]], tuple[str, tuple[int, ...]]],
    prefill: str,
    max_prompt_length: int,
) -> PreparedPrompt:
    try:
        text, token_ids = render(messages)
        truncated = len(token_ids) > max_prompt_length
        if truncated:
            messages = _shortened(messages, lambda m: len(render(m)[1]), len(token_ids), max_prompt_length)
            text, token_ids = render(messages)
    except (TemplateError, ValueError, TypeError) as error:
        raise DatasetError(
            f"row {row.index + 1}: the model's chat template refuses the prompt ({error}); roles here are "
            f"{', '.join(message.role for message in messages)}"
        ) from error
    if not token_ids:
        raise DatasetError(
            f"row {row.index + 1}: the prompt is empty, so the model has nothing to start from"
        )
    return PreparedPrompt(row.index, token_ids, text, messages, prefill, row.columns, truncated)


def _shortened(
    messages: tuple[ChatMessage, ...],
    count_tokens: Callable[[Sequence[ChatMessage]], int],
    full_count: int,
    max_prompt_length: int,
) -> tuple[ChatMessage, ...]:
    """The chat with the start of its longest user turn cut off until it fits, or with one character left."""
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if not places:
        return messages
    place = max(places, key=lambda p: len(messages[p].content))
    content = messages[place].content

    def keeping(length: int) -> tuple[ChatMessage, ...]:
        kept = replace(messages[place], content=_suffix(content, length))
        return (*messages[:place], kept, *messages[place + 1 :])

    low, high = 1, len(content)
    low_count, high_count = count_tokens(keeping(1)), full_count
    interpolate = True
    while high - low > 1 and low_count < max_prompt_length:
        # Tokens are spread about evenly, so interpolation lands close; halving in between bounds the search.
        share = (max_prompt_length - low_count) / (high_count - low_count) if interpolate else 0.5
        interpolate = not interpolate
        length = min(max(low + round((high - low) * share), low + 1), high - 1)
        count = count_tokens(keeping(length))
        if count <= max_prompt_length:
            low, low_count = length, count
        else:
            high, high_count = length, count
    return keeping(low)


def _suffix(content: str, length: int) -> str:
    """The last `length` code points, less those that belong to a character which begins before them."""
    start = max(len(content) - length, 0)
    while 0 < start < len(content) - 1 and (
        unicodedata.category(content[start]).startswith("M")
        or "\N{EMOJI MODIFIER FITZPATRICK TYPE-1-2}"
        <= content[start]
        <= "\N{EMOJI MODIFIER FITZPATRICK TYPE-6}"
        or _JOINER in content[start - 1 : start + 1]
    ):
        start += 1
    return content[start:]


def _refusal(too_long: Sequence[tuple[int, int]], max_prompt_length: int) -> InvalidArgumentError:
    index, length = max(too_long, key=lambda entry: entry[1])
    others = f" and {len(too_long) - 1} more" if len(too_long) > 1 else ""
    return InvalidArgumentError.of(
        "hyperparameters.max_prompt_length",
        f"{max_prompt_length} leaves no room for the prompt of row {index + 1}{others}: template and other "
        f"turns take {length} tokens when its longest user turn is cut to one character; at least {length} "
        "would work",
    )


__all__ = ["PreparedPrompt", "PreparedPrompts", "decode_completion", "prepare_prompts"]
