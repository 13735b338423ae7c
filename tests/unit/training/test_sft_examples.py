"""What sft learns of a row: tokens that the model would have written, after those that grpo would feed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_bench import load_tokenizer
from transformers import AutoTokenizer

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import ChatMessage
from trainer_service.training.dataset import DatasetError, DatasetRow
from trainer_service.training.prompts import prepare_prompts
from trainer_service.training.sft.examples import prepare_examples
from trainer_service.training.tiny import tiny_model_path

CHATML = AutoTokenizer.from_pretrained(tiny_model_path(), padding_side="left")
END = CHATML.convert_tokens_to_ids("<|im_end|>")

THINKING = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and not m.content.startswith('<think>') %}{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}{{- m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"""
"""Prefills `<think>`, and shows an answer without reasoning with an empty one."""

STRIPPING = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{{- m.content.split('</think>')[-1] }}{%- else %}{{- m.content }}{%- endif %}
{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"""
"""Prefills `<think>`, and drops the reasoning of every answer that is over."""

FORGETFUL = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and not loop.last %}{{- m.content.split('</think>')[-1] }}
{%- else %}{{- m.content }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
"""Drops the reasoning of answers that are not the last."""

BARE = """{%- for m in messages %}{{- m.role + ': ' + m.content + '\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}"""
"""Has no token that ends a turn."""


def tokenizer_with(template: str):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_path(), padding_side="left")
    tokenizer.chat_template = template
    return tokenizer


def row(prompt, index=0, **columns) -> DatasetRow:
    turns = prompt if isinstance(prompt, str) else tuple(ChatMessage(r, c) for r, c in prompt)
    return DatasetRow(index, turns, columns)


def conversation(*turns, index=0) -> DatasetRow:
    messages = [{"role": role, "content": content} for role, content in turns]
    return row(turns[:-1], index, messages=messages)


def prepared(*rows, tokenizer=CHATML, max_length=2048, ends=frozenset({END})):
    return prepare_examples(rows, tokenizer, end_token_ids=ends, max_length=max_length)


def pieces(example, tokenizer=CHATML) -> list[str]:
    """What is learnt, as text, one piece for each run of tokens."""
    found: list[list[int]] = []
    before = False
    for token, trained in zip(example.token_ids_T.tolist(), example.trained_T.tolist(), strict=True):
        if trained and not before:
            found.append([])
        if trained:
            found[-1].append(token)
        before = trained
    return [tokenizer.decode(tokens) for tokens in found]


def only(*rows, **options):
    (example,) = prepared(*rows, **options).examples
    return example


def test_a_completion_is_learnt_with_its_end_and_its_prompt_is_not():
    example = only(row("What is 1 + 2?", completion="<answer>3</answer>"))
    assert pieces(example) == ["<answer>3</answer><|im_end|>"]
    assert CHATML.decode(example.token_ids_T) == (
        "<|im_start|>user\nWhat is 1 + 2?<|im_end|>\n<|im_start|>assistant\n<answer>3</answer><|im_end|>"
    )


def test_every_answer_of_a_conversation_is_learnt():
    example = only(
        conversation(
            ("system", "Add."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "And 1?"), ("assistant", "3")
        )
    )
    assert pieces(example) == ["2<|im_end|>", "3<|im_end|>"]


def test_a_text_is_learnt_whole_and_its_end_with_it():
    example = only(row("", text="It is 19."))
    assert CHATML.decode(example.token_ids_T) == "It is 19.<|im_end|>"
    # Nothing stands before the first token, so that nothing can be learnt of it.
    assert example.trained_T.tolist() == [False] + [True] * (len(example.token_ids_T) - 1)


@pytest.mark.parametrize("template", [None, THINKING, STRIPPING, FORGETFUL, BARE])
def test_the_prompt_is_what_grpo_feeds(template):
    tokenizer = CHATML if template is None else tokenizer_with(template)
    turns = (("user", "What is 1 + 2?"), ("assistant", "3"), ("user", "And 4?"))
    by_grpo = prepare_prompts([row(turns)], tokenizer, max_prompt_length=999).prompts[0]
    example = only(row(turns, completion="7"), tokenizer=tokenizer)
    start = example.trained_T.tolist().index(True)
    assert tuple(example.token_ids_T[:start]) == by_grpo.token_ids


def test_after_a_prefilled_think_the_model_goes_on_where_the_template_left_it():
    tokenizer = tokenizer_with(THINKING)
    plain = only(row("1 + 2?", completion="3"), tokenizer=tokenizer)
    assert pieces(plain, tokenizer) == ["\n</think>\n\n3<|im_end|>"]
    reasoned = only(row("1 + 2?", completion="<think>\nEasy.\n</think>\n\n3"), tokenizer=tokenizer)
    assert pieces(reasoned, tokenizer) == ["Easy.\n</think>\n\n3<|im_end|>"]
    assert tokenizer.decode(reasoned.token_ids_T).count("<think>") == 1


def test_reasoning_that_a_template_drops_is_learnt_all_the_same():
    tokenizer = tokenizer_with(STRIPPING)
    example = only(row("1 + 2?", completion="<think>\nEasy.\n</think>\n\n3"), tokenizer=tokenizer)
    assert pieces(example, tokenizer) == ["Easy.\n</think>\n\n3<|im_end|>"]
    assert tokenizer.decode(example.token_ids_T).count("<think>") == 1


def test_only_the_last_answer_is_learnt_where_earlier_ones_are_shown_otherwise():
    tokenizer = tokenizer_with(FORGETFUL)
    forgotten = conversation(
        ("user", "1 + 1?"), ("assistant", "<think>one</think>2"), ("user", "And 1?"), ("assistant", "3")
    )
    told = prepared(forgotten, tokenizer=tokenizer)
    assert told.last_turn_count == 1
    assert pieces(told.examples[0], tokenizer) == ["3<|im_end|>"]
    # Where there is nothing to forget, all of them are.
    kept = conversation(("user", "1 + 1?"), ("assistant", "2"), ("user", "And 1?"), ("assistant", "3"))
    told = prepared(kept, tokenizer=tokenizer)
    assert told.last_turn_count == 0
    assert pieces(told.examples[0], tokenizer) == ["2<|im_end|>", "3<|im_end|>"]


def test_an_answer_without_an_end_in_the_template_gets_one():
    tokenizer = tokenizer_with(BARE)
    example = only(row("1 + 2?", completion="3"), tokenizer=tokenizer)
    assert example.token_ids_T[-1] == tokenizer.eos_token_id
    assert pieces(example, tokenizer)[0].startswith("3")


def test_without_a_template_the_completion_follows_the_prompt_as_it_is(model_dir):
    tokenizer = load_tokenizer(model_dir)
    example = only(row("w2 w3", completion=" w4 w5"), tokenizer=tokenizer, ends=frozenset({1}))
    assert example.token_ids_T.tolist() == [2, 3, 4, 5, 1]
    assert example.trained_T.tolist() == [False, False, True, True, True]
    with pytest.raises(DatasetError, match=r"row 3: the prompt is a chat, .* no chat template"):
        prepared(row([("user", "w2")], index=2, completion="w3"), tokenizer=tokenizer)
    with pytest.raises(DatasetError, match="row 1: messages are a chat"):
        prepared(conversation(("user", "w2"), ("assistant", "w3")), tokenizer=tokenizer)


def test_no_token_reaches_over_the_edge_of_the_prompt(model_dir):
    tokenizer = load_tokenizer(model_dir)
    # Together they would read "w34", one word, which a model that has read "w3" can not write.
    example = only(row("w2 w3", completion="4 w5"), tokenizer=tokenizer, ends=frozenset({1}))
    unknown = tokenizer.encode("4", add_special_tokens=False)
    assert example.token_ids_T.tolist() == [2, 3, *unknown, 5, 1]
    assert example.trained_T.tolist() == [False, False, True, True, True]


def test_a_row_without_an_answer_is_named():
    with pytest.raises(DatasetError, match="row 5 has no answer to imitate"):
        prepared(row("1 + 2?", index=4, answer=3))


def test_other_columns_of_these_names_are_not_taken_for_the_answer():
    reward_column = [{"role": "user", "content": "seen"}, {"role": "assistant", "content": "elsewhere"}]
    example = only(row("1 + 2?", completion="3", messages=reward_column, text="no"))
    assert pieces(example) == ["3<|im_end|>"]
    example = only(
        row(
            [("user", "1 + 2?")],
            messages=[{"role": "user", "content": "1 + 2?"}, {"role": "assistant", "content": "3"}],
            completion="no",
        )
    )
    assert pieces(example) == ["3<|im_end|>"]


def test_a_template_that_refuses_a_row_is_told_with_the_row():
    tokenizer = tokenizer_with("{{ raise_exception('no system turns') }}")
    with pytest.raises(
        DatasetError, match=r"row 1: .*refuses the conversation .no system turns.*user, assist"
    ):
        prepared(row("a", completion="b"), tokenizer=tokenizer)


def test_long_examples_are_cut_or_left_out_and_counted():
    rows = [
        row("1 + 2?", 0, completion="3"),
        row("1 + 2?", 1, completion="3" * 100),
        row("1" * 100, 2, completion="3"),
    ]
    whole = prepared(*rows)
    assert (whole.cut_count, whole.dropped_count) == (0, 0)
    prompt = whole.examples[0].trained_T.tolist().index(True)
    cut = prepared(*rows, max_length=prompt + 5)
    assert (cut.cut_count, cut.dropped_count) == (1, 1)
    assert [e.row_index for e in cut.examples] == [0, 1]
    assert pieces(cut.examples[1]) == ["33333"]
    assert cut.examples[0].token_ids_T.tolist() == whole.examples[0].token_ids_T.tolist()
    with pytest.raises(InvalidArgumentError) as refused:
        prepared(*rows, max_length=prompt)
    (violation,) = refused.value.violations
    assert violation.field == "hyperparameters.max_length"
    assert f"any of the 3 rows, as their prompts alone are longer; at least {prompt + 1}" in violation.message
    assert len(prepared(*rows, max_length=prompt + 1).examples) == 2


words = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), min_size=1, max_size=12).filter(
    lambda text: text.strip() == text
)
chats = st.lists(st.tuples(words, words), min_size=1, max_size=4)


def by_offsets(text: str, spans: list[tuple[int, int]]) -> tuple[list[int], list[bool]]:
    """The oracle: tokens of the whole text, learnt where their characters lie in one of the spans."""
    encoded = CHATML(text, return_offsets_mapping=True, add_special_tokens=False)
    inside = [any(a <= left and right <= b for a, b in spans) for left, right in encoded["offset_mapping"]]
    return encoded["input_ids"], inside


@settings(max_examples=60, deadline=None)
@given(system=st.none() | words, chat=chats)
def test_answers_are_where_their_characters_are(system, chat):
    turns = [("system", system)] if system is not None else []
    for question, answer in chat:
        turns += [("user", question), ("assistant", answer)]
    # ChatML, written down once more.
    text, spans = "", []
    for role, content in turns:
        text += f"<|im_start|>{role}\n"
        start = len(text)
        text += f"{content}<|im_end|>"
        if role == "assistant":
            spans.append((start, len(text)))
        text += "\n"
    text = text.removesuffix("\n")
    tokens, learnt = by_offsets(text, spans)
    example = only(conversation(*turns))
    assert example.token_ids_T.tolist() == tokens
    assert example.trained_T.tolist() == learnt


@settings(max_examples=40, deadline=None)
@given(question=words, answer=words, limit=st.integers(1, 60))
def test_a_cut_keeps_what_is_before_it(question, answer, limit):
    whole = only(row(question, completion=answer))
    first = whole.trained_T.tolist().index(True)
    if limit <= first:
        with pytest.raises(InvalidArgumentError):
            prepared(row(question, completion=answer), max_length=limit)
        return
    cut = only(row(question, completion=answer), max_length=limit)
    assert cut.token_ids_T.tolist() == whole.token_ids_T.tolist()[:limit]
    assert cut.trained_T.tolist() == whole.trained_T.tolist()[:limit]
    assert cut.trained_count >= 1
