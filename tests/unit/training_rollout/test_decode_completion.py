"""Token ids back to text: special tokens apart, no half characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from plaudit.types.scoring import FinishReason
from trainer_service.training.decoding import decode_completion
from trainer_service.training.tiny import tiny_model_path

Make = Callable[..., PreTrainedTokenizerFast]


def test_special_tokens_are_in_the_raw_text_only(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    token_ids = tokenizer.encode("<think>a</think> 19<|im_end|>", add_special_tokens=False)
    assert decode_completion(tokenizer, token_ids, FinishReason.STOP) == (
        "<think>a</think> 19",
        "<think>a</think> 19<|im_end|>",
    )


def test_raw_text_is_empty_where_it_is_the_same(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    token_ids = tokenizer.encode("so , it is . don 't", add_special_tokens=False)
    assert decode_completion(tokenizer, token_ids, FinishReason.LENGTH) == ("so , it is . don 't", "")


def test_spaces_stay_as_the_model_wrote_them() -> None:
    from tokenizers import Tokenizer, decoders, models

    core = Tokenizer(models.WordLevel({"it": 0, " .": 1}, unk_token="it"))
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=True)
    assert tokenizer.decode([0, 1]) == "it."
    assert decode_completion(tokenizer, [0, 1], FinishReason.STOP) == ("it .", "")


@pytest.mark.parametrize("character", ["é", "漢", "🙂"])
def test_a_character_cut_by_the_limit_is_dropped(make_tokenizer: Make, character: str) -> None:
    tokenizer = make_tokenizer()
    token_ids = tokenizer.encode(f"ab{character}", add_special_tokens=False)
    for cut in range(1, len(character.encode())):
        assert decode_completion(tokenizer, token_ids[:-cut], FinishReason.LENGTH) == ("ab", "")
    assert decode_completion(tokenizer, token_ids, FinishReason.LENGTH) == (f"ab{character}", "")


def test_bytes_that_the_model_itself_got_wrong_stay_visible(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    han = tokenizer.encode("漢", add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert decode_completion(tokenizer, [*han[:2], end], FinishReason.STOP)[0] == "\ufffd"
    middle = [*han[:1], *tokenizer.encode("x", add_special_tokens=False)]
    assert decode_completion(tokenizer, middle, FinishReason.LENGTH)[0] == "\ufffdx"


def test_decoders_that_show_every_left_byte() -> None:
    from tokenizers import Tokenizer, decoders, models

    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"<unk>": 256}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    # One byte too many, and this decoder gives up the whole row of bytes.
    token_ids = list("a漢🙂".encode())
    assert tokenizer.decode(token_ids[:-1]) == "\ufffd" * 7
    for cut in (1, 2, 3):
        assert decode_completion(tokenizer, token_ids[:-cut], FinishReason.LENGTH) == ("a漢", "")
    assert decode_completion(tokenizer, token_ids, FinishReason.LENGTH) == ("a漢🙂", "")


def test_a_token_with_a_whole_and_a_half_character_keeps_the_whole_one() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    space, first = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(" 漢")[0][0][:2]
    vocab = {char: index for index, char in enumerate([*alphabet, space + first])}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[(space, first)]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    token_ids = tokenizer.encode("a 漢")
    assert len(token_ids) == 4
    assert decode_completion(tokenizer, token_ids[:2], FinishReason.LENGTH) == ("a ", "")


@settings(deadline=None, max_examples=60)
@given(st.text(min_size=1, max_size=30), st.integers(0, 80))
def test_a_cut_text_is_a_start_of_the_whole(text: str, cut: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_path())
    token_ids = tokenizer.encode(text, add_special_tokens=False)[: max(cut, 1)]
    decoded, raw = decode_completion(tokenizer, token_ids, FinishReason.LENGTH)
    # This tokenizer composes characters first.
    assert unicodedata.normalize("NFC", text).startswith(decoded)
    assert raw == ""
