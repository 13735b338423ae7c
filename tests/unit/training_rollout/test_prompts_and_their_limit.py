"""A limit that a prompt keeps changes nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer_service.training.dataset import DatasetRow
from trainer_service.training.prompts import PreparedPrompt, prepare_prompts


def test_special_tokens_are_there_whatever_the_limit(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    row = DatasetRow(0, "What is 2 + 2?", {})

    def prepared(limit: int) -> PreparedPrompt:
        return prepare_prompts([row], tokenizer, max_prompt_length=limit).prompts[0]

    whole = prepared(100_000)
    assert prepared(len(whole.token_ids)) == whole
    cut = prepared(len(whole.token_ids) - 5)
    assert cut.truncated and not whole.truncated
    special = [t for t in whole.token_ids if t in tokenizer.all_special_ids]
    assert len(special) >= 3
    # What is cut is the user's text alone: the marks of the turns are as many as before.
    assert [t for t in cut.token_ids if t in tokenizer.all_special_ids] == special
    assert tokenizer.decode(cut.token_ids) == cut.text
