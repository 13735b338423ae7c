"""Token ids of a completion become the text that rewards read."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from plaudit.types.scoring import FinishReason

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MOST_BYTES_LEFT = 3
"""Bytes, and so tokens, that a cut character of UTF-8 can leave."""


def decode_completion(
    tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], finish_reason: FinishReason
) -> tuple[str, str]:
    """Returns the text without special tokens, and the text with them, or "" where it is the same.

    Unless the completion ended by itself, a character that was cut in two at its end is left out of both.
    """
    text, raw_text = (
        _decode(tokenizer, token_ids, skip_special_tokens=skip)
        if finish_reason is FinishReason.STOP
        else _decode_cut(tokenizer, token_ids, skip_special_tokens=skip)
        for skip in (True, False)
    )
    return text, "" if raw_text == text else raw_text


def _decode_cut(
    tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], *, skip_special_tokens: bool
) -> str:
    text = _decode(tokenizer, token_ids, skip_special_tokens=skip_special_tokens)
    if not text.endswith(_REPLACEMENT):
        return text
    # A token may hold the end of a character beside the start of the cut one, and is then to stay; but where
    # every byte is a token, one byte too many makes some decoders give up all characters of its row.
    shorter = (
        _decode(tokenizer, token_ids[: len(token_ids) - left], skip_special_tokens=skip_special_tokens)
        for left in range(1, min(_MOST_BYTES_LEFT, len(token_ids)) + 1)
    )
    whole = [start for start in shorter if not start.endswith(_REPLACEMENT)]
    intact = text.rstrip(_REPLACEMENT)
    if whole:
        return max([intact, *whole], key=len)
    return text[: max(len(text) - _MOST_BYTES_LEFT, len(intact))]


def _decode(
    tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], *, skip_special_tokens: bool
) -> str:
    # Without clean-up: it would take the space out of "x ." and rewards would see another text.
    return str(
        tokenizer.decode(
            list(token_ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
    )
