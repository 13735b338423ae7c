"""Prompts: rendered once, measured with the real template, shortened without losing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import ChatMessage
from trainer_service.training.dataset import DatasetError, DatasetRow
from trainer_service.training.prompts import PreparedPrompts, prepare_prompts
from trainer_service.training.tiny import tiny_model_path

Make = Callable[..., PreTrainedTokenizerFast]


def rows(*prompts: str | Sequence[tuple[str, str]]) -> list[DatasetRow]:
    return [
        DatasetRow(
            index,
            prompt if isinstance(prompt, str) else tuple(ChatMessage(*turn) for turn in prompt),
            {"answer": index},
        )
        for index, prompt in enumerate(prompts)
    ]


def prepare(tokenizer: Any, *prompts: str | Sequence[tuple[str, str]], limit: int = 1000) -> PreparedPrompts:
    return prepare_prompts(rows(*prompts), tokenizer, max_prompt_length=limit)


def test_a_chat_goes_through_the_template(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    (prompt,) = prepare(tokenizer, [("system", "Be brief."), ("user", "Hi")]).prompts
    assert prompt.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    expected = tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert list(prompt.token_ids) == expected
    assert prompt.messages == (ChatMessage("system", "Be brief."), ChatMessage("user", "Hi"))
    assert (prompt.row_index, prompt.columns, prompt.prefill) == (0, {"answer": 0}, "")
    assert not prompt.truncated


def test_plain_text_is_a_user_turn_where_there_is_a_template(make_tokenizer: Make) -> None:
    # A raw string that skips the template never sees the end token that the model learned.
    text, chat = prepare(make_tokenizer(), "Hi", [("user", "Hi")]).prompts
    assert (text.text, text.token_ids, text.messages) == (chat.text, chat.token_ids, chat.messages)
    assert text.text.endswith("<|im_start|>assistant\n")


def test_plain_text_is_fed_as_it_is_without_a_template(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(None)
    (prompt,) = prepare(tokenizer, "Once upon").prompts
    assert prompt.text == "Once upon"
    assert list(prompt.token_ids) == tokenizer.encode("Once upon")
    assert prompt.messages == (ChatMessage("user", "Once upon"),)


def test_plain_text_follows_the_start_token_but_no_end_token(make_tokenizer: Make) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = make_tokenizer(None, bos_token="<s>")
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<s>", "<|endoftext|>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A <|endoftext|>", special_tokens=special
    )
    assert tokenizer.encode("Hi")[-1] == tokenizer.eos_token_id
    (prompt,) = prepare(tokenizer, "Hi").prompts
    assert prompt.text == "<s>Hi"
    assert list(prompt.token_ids) == tokenizer.encode("<s>Hi", add_special_tokens=False)


def test_a_chat_without_a_template_is_refused_with_its_row(make_tokenizer: Make) -> None:
    with pytest.raises(DatasetError, match=r"row 2: the prompt is a chat, but .* no chat template"):
        prepare(make_tokenizer(None), "fine", [("user", "Hi")])


def test_an_empty_prompt_is_refused_where_nothing_would_be_fed(make_tokenizer: Make) -> None:
    with pytest.raises(DatasetError, match="row 2: the prompt is empty"):
        prepare(make_tokenizer(None), "fine", "")
    assert prepare(make_tokenizer(), "").prompts[0].text.startswith("<|im_start|>user")


def test_a_last_turn_of_the_assistant_is_left_open(make_tokenizer: Make) -> None:
    (prompt,) = prepare(make_tokenizer(), [("user", "Hi"), ("assistant", "<answer>")]).prompts
    assert prompt.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<answer>"
    assert prompt.prefill == "<answer>"


def test_a_prompt_that_the_template_refuses_is_named(make_tokenizer: Make) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    )
    with pytest.raises(DatasetError, match=r"row 2: .*System role not supported.*system, user"):
        prepare(make_tokenizer(template), "fine", [("system", "x"), ("user", "y")])


def test_a_long_prompt_loses_the_start_of_its_longest_user_turn(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    chat = [("system", "S" * 50), ("user", "short"), ("assistant", "A" * 90), ("user", "0123456789" * 8)]
    whole = len(prepare(tokenizer, chat).prompts[0].token_ids)
    result = prepare(tokenizer, chat, limit=whole - 13)
    (prompt,) = result.prompts
    # A token is a byte here, so 13 characters go; everything else stays in its place.
    assert prompt.truncated and result.truncated_count == 1
    assert len(prompt.token_ids) == whole - 13
    assert [m.content for m in prompt.messages[:3]] == ["S" * 50, "short", "A" * 90]
    assert prompt.messages[3].content == ("0123456789" * 8)[13:]
    assert prompt.text == prepare(tokenizer, [*chat[:3], ("user", ("0123456789" * 8)[13:])]).prompts[0].text


def test_the_limit_itself_fits(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    whole = len(prepare(tokenizer, "x" * 2000, limit=10_000).prompts[0].token_ids)
    assert prepare(tokenizer, "x" * 2000, limit=whole).truncated_count == 0
    assert prepare(tokenizer, "x" * 2000, limit=whole - 1).truncated_count == 1


@settings(deadline=None, max_examples=60)
@given(st.text(min_size=1, max_size=300), st.integers(60, 200))
def test_whatever_the_text_the_prompt_fits_and_nothing_fits_better(text: str, limit: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_path())
    (prompt,) = prepare(tokenizer, text, limit=limit).prompts
    assert len(prompt.token_ids) <= limit
    kept = prompt.messages[0].content
    assert text.endswith(kept) and kept
    assert "\ufffd" not in kept or "\ufffd" in text
    if prompt.truncated:
        # One more character would be too long, or belongs to the same visible character.
        longer = text[len(text) - len(kept) - 1 :]
        assert len(prepare(tokenizer, longer, limit=10_000).prompts[0].token_ids) > limit - 12


@pytest.mark.parametrize("cluster", ["e\u0301", "👨\u200d👩\u200d👧", "👍🏽", "क्षि"])
def test_a_character_of_several_code_points_is_not_split(make_tokenizer: Make, cluster: str) -> None:
    tokenizer = make_tokenizer()
    text = cluster * 30
    whole = len(prepare(tokenizer, text).prompts[0].token_ids)
    for cut in range(1, 30):
        kept = prepare(tokenizer, text, limit=whole - cut).prompts[0].messages[0].content
        first = kept[0]
        assert first == cluster[0] or (cluster == "क्षि" and first == "ष")


def test_a_limit_below_the_template_is_refused_with_one_that_works(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    prompts = (
        "fits",
        [("system", "S" * 100), ("user", "question")],
        [("system", "S" * 40), ("user", "q" * 70)],
    )
    with pytest.raises(InvalidArgumentError) as caught:
        prepare(tokenizer, *prompts, limit=60)
    (violation,) = caught.value.violations
    assert violation.field == "hyperparameters.max_prompt_length"
    assert "row 2 and 1 more" in violation.message
    works = int(violation.message.split("at least ")[1].split()[0])
    assert prepare(tokenizer, *prompts, limit=works).truncated_count == 2
    with pytest.raises(InvalidArgumentError):
        prepare(tokenizer, *prompts, limit=works - 1)


def test_a_chat_without_a_user_turn_is_never_shortened(make_tokenizer: Make) -> None:
    with pytest.raises(InvalidArgumentError, match="row 1"):
        prepare(make_tokenizer(), [("system", "S" * 100)], limit=60)


HEADER = "<|im_start|>{{ m.role }}\n"
TURNS = "{% for m in messages %}" + HEADER + "{{ m.content }}<|im_end|>\n{% endfor %}"
THINKS_IN_LAST_TURN = (
    "{% for m in messages %}" + HEADER + "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
)
NOTES_IN_LAST_TURN = THINKS_IN_LAST_TURN.replace("<think>\n\n</think>", "<think>\nnone\n</think>")
THINKS_IN_EVERY_TURN = (
    "{% for m in messages %}" + HEADER + "{% if m.role == 'assistant' %}<think></think>\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
)
CHANNELS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.role == 'assistant' %}final:{% endif %}"
    "{{ m.content }}<|im_end|>{% endfor %}"
)
SINGLE_QUESTION = (
    "{% if messages|length > 1 %}{{ raise_exception('one question only') }}{% endif %}"
    "Q: {{ messages[0].content }}\n"
)


def opening(text: str) -> str:
    return "{% if add_generation_prompt %}" + text + "{% endif %}"


@pytest.mark.parametrize(
    ("template", "prefill"),
    [
        (TURNS + opening("<|im_start|>assistant\n"), ""),
        (TURNS + opening("<|im_start|>assistant\n<think>\n"), "<think>\n"),
        (THINKS_IN_LAST_TURN + opening("<|im_start|>assistant\n"), ""),
        (THINKS_IN_LAST_TURN + opening("<|im_start|>assistant\n<think>\n"), "<think>\n"),
        (
            THINKS_IN_LAST_TURN + opening("<|im_start|>assistant\n<think>\n\n</think>\n\n"),
            "<think>\n\n</think>\n\n",
        ),
        (NOTES_IN_LAST_TURN + opening("<|im_start|>assistant\n<think>\n"), "<think>\n"),
        (THINKS_IN_EVERY_TURN + opening("<|im_start|>assistant\n"), ""),
        (THINKS_IN_EVERY_TURN + opening("<|im_start|>assistant\n<think>"), "<think>"),
        (CHANNELS + opening("<|im_start|>assistant"), ""),
        (SINGLE_QUESTION + opening("A: "), ""),
        (TURNS, ""),
    ],
)
def test_what_the_template_puts_into_the_models_mouth_is_told(
    make_tokenizer: Make, template: str, prefill: str
) -> None:
    (prompt,) = prepare(make_tokenizer(template), "Why?").prompts
    assert prompt.prefill == prefill
    assert prompt.text.endswith(prefill)
