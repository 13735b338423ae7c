"""Rows of a dataset become examples: what the model reads, and which of its tokens are learnt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from plaudit.errors import InvalidArgumentError
from trainer_service.training._rollout_chat import ChatRenderer, turn_end_token_id
from trainer_service.training.dataset import DatasetRow
from trainer_service.training.sft._answers import AnswerWriter, Written
from trainer_service.training.sft._shapes import Conversation, Text, shape_of

TokenIds: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """An example of T tokens. `trained_T` marks those whose writing is learnt, at least one.

    The first token is never among them, as nothing stands before it.
    """

    row_index: int
    token_ids_T: TokenIds
    trained_T: Mask

    @property
    def trained_count(self) -> int:
        """Tokens in the loss."""
        return int(self.trained_T.sum())


@dataclass(frozen=True, slots=True)
class PreparedExamples:
    """The examples of a dataset in its order, and what did not become of its rows.

    `cut_count` examples lost their end, `dropped_count` rows are left out because nothing to learn was within
    `max_length`, and of `last_turn_count` conversations only the last answer is learnt.
    """

    examples: tuple[Example, ...]
    cut_count: int
    dropped_count: int
    last_turn_count: int


def prepare_examples(
    rows: Iterable[DatasetRow],
    tokenizer: PreTrainedTokenizerBase,
    *,
    end_token_ids: frozenset[int],
    max_length: int,
) -> PreparedExamples:
    """Renders every row with the tokenizer's chat template, at most `max_length` tokens each.

    `end_token_ids` are those that end a completion. Raises DatasetError for a row that holds no answer, or
    that the template refuses, and InvalidArgumentError where `max_length` leaves nothing to learn at all.
    """
    writer = AnswerWriter(ChatRenderer(tokenizer), _end_token(tokenizer, end_token_ids))
    examples: list[Example] = []
    cut = dropped = last_turn = 0
    shortest_that_teaches: int | None = None
    for row in rows:
        written, only_last = _written(writer, row)
        token_ids_T = np.asarray(written.token_ids, dtype=np.int32)
        trained_T = _mask(written)
        first = int(trained_T.argmax()) if trained_T.any() else None
        if first is not None:
            shortest_that_teaches = min(first + 1, shortest_that_teaches or first + 1)
        if first is None or first >= max_length:
            dropped += 1
            continue
        last_turn += only_last
        cut += len(token_ids_T) > max_length
        examples.append(Example(row.index, token_ids_T[:max_length], trained_T[:max_length]))
    if not examples:
        raise InvalidArgumentError.of(
            "hyperparameters.max_length",
            f"{max_length} leaves nothing to learn of any of the {dropped} rows, as their prompts alone are "
            f"longer; at least {shortest_that_teaches} would leave something",
        )
    return PreparedExamples(tuple(examples), cut, dropped, last_turn)


def _end_token(tokenizer: PreTrainedTokenizerBase, end_token_ids: frozenset[int]) -> int:
    """The token with which answers end where no template says it."""
    turn_end = turn_end_token_id(tokenizer)
    if turn_end is not None:
        return turn_end
    eos = tokenizer.eos_token_id
    return eos if isinstance(eos, int) else min(end_token_ids)


def _written(writer: AnswerWriter, row: DatasetRow) -> tuple[Written, bool]:
    shape = shape_of(row)
    if isinstance(shape, Text):
        return writer.text(row.index, shape.text), False
    if not isinstance(shape, Conversation):
        return writer.completion(row.index, shape.prompt, shape.completion), False
    written = writer.conversation(row.index, shape.messages)
    answers = sum(message.role == "assistant" for message in shape.messages)
    return written, len(written.spans) < answers


def _mask(written: Written) -> Mask:
    trained_T = np.zeros(len(written.token_ids), dtype=np.bool_)
    for start, stop in written.spans:
        trained_T[start:stop] = True
    trained_T[:1] = False
    return trained_T
