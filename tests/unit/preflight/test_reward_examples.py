"""Texts that built-in rewards call good and bad, scored by the rewards themselves."""

import json

import pytest

from plaudit.errors import InternalError, InvalidArgumentError
from plaudit.types.scoring import ChatMessage, Completion, Examples, FinishReason, Prompt
from reward_service import Item, Reward, reward
from reward_service._examples import ExampleWriter
from reward_service._session import Selection
from reward_service.rewards.exact_answer import exact_answer
from reward_service.rewards.format_check import format_check
from reward_service.rewards.length_penalty import length_penalty


def prompt(**columns):
    return Prompt("g", (ChatMessage("user", "What is 8 * 9?"),), columns)


def written(of, config, columns):
    writer = ExampleWriter({of.name: of})
    return writer.write(Selection("k", of.name, json.dumps(config)), [prompt(**columns)], [])


async def scores(of, config, columns, texts):
    read = of.config.read(json.dumps(config), "config")
    items = [
        Item(prompt(**columns), Completion(str(n), text, 5, FinishReason.STOP), read)
        for n, text in enumerate(texts)
    ]
    return [outcome.value for outcome in await of.score(items)]


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        ({}, 72),
        ({}, 0.5),
        ({}, True),
        ({}, "blue whale"),
        ({}, ["Paris", "paris"]),
        ({"tag": "result"}, -3),
        ({"extract": "boxed"}, 72),
        ({"extract": "last_number"}, "1,234"),
        ({"extract": "whole"}, "yes"),
    ],
)
async def test_exact_answer_knows_what_is_right(config, answer):
    examples = written(exact_answer, config, {"answer": answer})["g"]
    assert await scores(exact_answer, config, {"answer": answer}, examples.good) == [1.0]
    assert await scores(exact_answer, config, {"answer": answer}, examples.bad) == [0.0]


@pytest.mark.parametrize(
    ("config", "columns"),
    [
        ({"extract": "regex", "pattern": "A: (.*)"}, {"answer": 7}),
        ({}, {"answer": None}),
        ({}, {}),
        ({}, {"answer": "</answer>"}),
        ({"extract": "last_number"}, {"answer": "blue"}),
        ({}, {"answer": []}),
    ],
)
def test_exact_answer_says_nothing_where_it_can_write_none(config, columns):
    assert written(exact_answer, config, columns) == {}


@pytest.mark.parametrize(
    "config",
    [{}, {"tags": ["answer"]}, {"grading": "graded"}, {"tags": ["a", "b", "c"], "allow_text_outside": False}],
)
async def test_format_check_knows_what_is_well_formed(config):
    examples = written(format_check, config, {})["g"]
    assert await scores(format_check, config, {}, examples.good) == [1.0]
    assert max(await scores(format_check, config, {}, examples.bad)) < 1.0


def test_rewards_without_examples_write_none():
    assert written(format_check, {"pattern": "^x"}, {}) == {}
    assert written(length_penalty, {"soft_limit": 1, "hard_limit": 2}, {}) == {}


def make(examples):
    @reward(name="mine", description="Mine.", examples=examples)
    async def mine(item: Item) -> float:
        return 1.0

    return mine


def test_everything_wrong_with_a_request_is_told_at_once():
    with pytest.raises(InvalidArgumentError) as refused:
        ExampleWriter({"mine": make(None)}).write(Selection("k", "yours", ""), [], [])
    assert [v.field for v in refused.value.violations] == ["groups", "reward.name"]


@pytest.mark.parametrize(
    ("examples", "told"),
    [
        (lambda prompt, config: {}["answer"], "raised KeyError"),
        (lambda prompt, config: ["72"], "returned list"),
        (lambda prompt, config: Examples(good=(72,)), "returned int for a text"),
    ],
)
def test_a_function_that_is_wrong_is_named(examples, told):
    with pytest.raises(InternalError, match=told):
        ExampleWriter({"mine": make(examples)}).write(Selection("k", "mine", ""), [prompt()], [])


def test_an_async_function_is_refused_when_the_reward_is_made():
    async def examples(prompt, config):
        return None

    with pytest.raises(InvalidArgumentError, match="plain function"):
        make(examples)
    assert isinstance(make(None), Reward)
