"""What a chat template does to a prompt, and what it puts into the model's mouth."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from plaudit.types.scoring import ChatMessage

_PROBE = (ChatMessage("user", "Probe"),)
_SENTINEL = "SENTINEL0ANSWER"
_EMPTY_REASONING = re.compile(r"<([\w:]+)>\s*</\1>\s*$")
"""What templates of reasoning models put before an answer without reasoning: `<think>` and `</think>`."""


class ChatRenderer:
    """Makes the model's input of a prompt: text as the model reads it, and its token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.has_template = bool(tokenizer.chat_template)
        self.prefill = _find_prefill(tokenizer) if self.has_template else ""
        """Text that the template itself puts at the start of the assistant's turn, for example
        `<think>\\n`."""

    def render(self, messages: Sequence[ChatMessage]) -> tuple[str, tuple[int, ...]]:
        """Renders a chat up to where the model is to write. A last turn of the assistant is left open."""
        continued = messages[-1].role == "assistant"
        text = _apply(
            self._tokenizer, messages, add_generation_prompt=not continued, continue_final_message=continued
        )
        return text, self.encode(text)

    def close(self, messages: Sequence[ChatMessage]) -> str:
        """Renders a chat in which every turn is over, as a later prompt would show it."""
        return _apply(self._tokenizer, messages)

    def feed(self, text: str) -> tuple[str, tuple[int, ...]]:
        """For tokenizers without a template: the text as it is, after the start token where there is one."""
        token_ids = self.encode(text)
        start = self._tokenizer.bos_token_id
        # Asked of the tokenizer itself, as some have a start token and do not use it; an end token, which
        # others add, would tell the model that there is nothing to write.
        with_special = self._tokenizer.encode(text, verbose=False)
        if start is None or with_special[:1] != [start]:
            return text, token_ids
        return f"{self._tokenizer.bos_token}{text}", (int(start), *token_ids)

    def token_text(self, token_id: int) -> str:
        """How a special token is written in a text."""
        return str(self._tokenizer.convert_ids_to_tokens(token_id))

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of the text as it is; names of special tokens in it become those tokens."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))


def turn_end_token_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token with which the chat template closes the assistant's last turn, where it has one."""
    if not tokenizer.chat_template:
        return None
    try:
        text = _apply(tokenizer, (*_PROBE, ChatMessage("assistant", _SENTINEL)))
    except TemplateError:
        return None
    _, found, after = text.rpartition(_SENTINEL)
    token_ids = tokenizer.encode(after.lstrip(), add_special_tokens=False) if found and after.strip() else []
    return token_ids[0] if token_ids and token_ids[0] in tokenizer.all_special_ids else None


def _find_prefill(tokenizer: PreTrainedTokenizerBase) -> str:
    # In a turn that is over and answered, a template writes its bare header, then the content.
    chat = (*_PROBE, ChatMessage("assistant", _SENTINEL), *_PROBE)
    try:
        header = _apply(tokenizer, chat).partition(_SENTINEL)[0]
        opening = _apply(tokenizer, _PROBE, add_generation_prompt=True)
    except TemplateError:
        # A template for single questions: there is nothing to compare with.
        return ""
    header = _EMPTY_REASONING.sub("", header)
    return opening.removeprefix(header) if opening.startswith(header) else ""


def _apply(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[ChatMessage],
    *,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
) -> str:
    return str(
        tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in messages],
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )
    )
