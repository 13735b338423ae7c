"""Answers as a model would write them: after the very tokens that it would have read as a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import TemplateError

from plaudit.types.scoring import ChatMessage
from trainer_service.training._rollout_chat import ChatRenderer
from trainer_service.training.dataset import DatasetError


@dataclass(frozen=True, slots=True)
class Written:
    """Token ids of a prompt and what is written after it; `spans` are the written ones, (start, stop)."""

    token_ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    """An answer: the prompt before it, and the text that follows, as far as the model writes it.

    `ends`: whether the text brings its end token along, as the template has it.
    """

    prompt_text: str
    prompt_ids: tuple[int, ...]
    text: str
    ends: bool

    @property
    def whole(self) -> str:
        return self.prompt_text + self.text


class AnswerWriter:
    """Renders answers for one tokenizer."""

    def __init__(self, renderer: ChatRenderer, end_token_id: int) -> None:
        """`end_token_id` ends an answer where the template does not."""
        self._renderer = renderer
        self._end = end_token_id
        self._end_text = renderer.token_text(end_token_id)

    def conversation(self, row_index: int, messages: Sequence[ChatMessage]) -> Written:
        """Every answer, where each prompt of the template is a part of the next one; else the last one."""
        self._need_template(row_index, "messages are")
        *_, last_place = places = [i for i, message in enumerate(messages) if message.role == "assistant"]
        last = self._turn(row_index, messages[:last_place], messages[last_place])
        written = self._after_prompt(last)
        spans = [
            span
            for place in places[:-1]
            if (span := self._earlier(messages[: place + 1], last, written.token_ids)) is not None
        ]
        if len(spans) < len(places) - 1:
            return written
        return Written(written.token_ids, (*spans, *written.spans))

    def completion(self, row_index: int, prompt: str | tuple[ChatMessage, ...], completion: str) -> Written:
        """The completion; a text as prompt is a turn of the user where there is a template."""
        if isinstance(prompt, str) and not self._renderer.has_template:
            text, token_ids = self._renderer.feed(prompt)
            return self._after_prompt(_Turn(text, token_ids, completion, ends=False))
        self._need_template(row_index, "the prompt is")
        messages = (ChatMessage("user", prompt),) if isinstance(prompt, str) else prompt
        turn = self._turn(row_index, messages, ChatMessage("assistant", completion))
        return self._after_prompt(turn)

    def text(self, row_index: int, text: str) -> Written:
        """The whole text, and the end after it."""
        _, token_ids = self._renderer.feed(text)
        token_ids = self._ended(token_ids)
        return Written(token_ids, ((0, len(token_ids)),))

    def _need_template(self, row_index: int, what: str) -> None:
        if not self._renderer.has_template:
            raise DatasetError(
                f"row {row_index + 1}: {what} a chat, but the model's tokenizer has no chat template; "
                "give prompts and completions as plain text, or train a model that has one"
            )

    def _turn(self, row_index: int, prompt: Sequence[ChatMessage], answer: ChatMessage) -> _Turn:
        """The answer after its prompt. Raises DatasetError where the template refuses one of them."""
        try:
            prompt_text, prompt_ids = self._renderer.render(prompt)
            if (text := self._by_template(prompt_text, prompt, answer)) is not None:
                return _Turn(prompt_text, prompt_ids, text, ends=text.endswith(self._end_text))
        except (TemplateError, ValueError, TypeError, IndexError) as error:
            roles = ", ".join(message.role for message in (*prompt, answer))
            raise DatasetError(
                f"row {row_index + 1}: the model's chat template refuses the conversation ({error}); roles "
                f"here are {roles}"
            ) from error
        # The template shows answers otherwise than models write them: the content follows as it is.
        return _Turn(prompt_text, prompt_ids, self._without_prefill(answer.content), ends=False)

    def _by_template(
        self, prompt_text: str, prompt: Sequence[ChatMessage], answer: ChatMessage
    ) -> str | None:
        """What the template itself puts after the prompt, through the end token; None where it is not that.

        It is not where a finished turn begins otherwise than the prompt does, or lacks a part of the content:
        some templates drop the reasoning of answers.
        """
        closed = self._renderer.close((*prompt, answer))
        if not closed.startswith(prompt_text):
            return None
        text = closed[len(prompt_text) :]
        if self._end_text in text:
            text = text[: text.rindex(self._end_text) + len(self._end_text)]
        return text if _squeezed(answer.content) in _squeezed(self._renderer.prefill + text) else None

    def _earlier(
        self, messages: Sequence[ChatMessage], last: _Turn, token_ids: tuple[int, ...]
    ) -> tuple[int, int] | None:
        """Where the answer that ends `messages` stands in the conversation's tokens; None: not as written."""
        try:
            prompt_text, prompt_ids = self._renderer.render(messages[:-1])
            text = self._by_template(prompt_text, messages[:-1], messages[-1])
        except (TemplateError, ValueError, TypeError, IndexError):
            return None
        if text is None or not last.prompt_text.startswith(prompt_text + text):
            return None
        through = self._renderer.encode(prompt_text + text)
        if token_ids[: len(prompt_ids)] != prompt_ids or token_ids[: len(through)] != through:
            return None
        return len(prompt_ids), len(through)

    def _after_prompt(self, turn: _Turn) -> Written:
        token_ids = self._renderer.encode(turn.whole)
        start = len(turn.prompt_ids)
        if token_ids[:start] != turn.prompt_ids:
            # A token would reach over the edge, which a model that has read the prompt can not write.
            token_ids = turn.prompt_ids + self._renderer.encode(turn.text)
        if not turn.ends:
            token_ids = self._ended(token_ids)
        return Written(token_ids, ((start, len(token_ids)),))

    def _ended(self, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        return token_ids if token_ids[-1:] == (self._end,) else (*token_ids, self._end)

    def _without_prefill(self, content: str) -> str:
        opening = self._renderer.prefill.strip()
        if opening and content.lstrip().startswith(opening):
            return content.lstrip()[len(opening) :].lstrip("\n")
        return content


def _squeezed(text: str) -> str:
    return "".join(text.split())
