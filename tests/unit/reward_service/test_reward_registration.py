"""What is refused when a reward is registered, and what is told about one that is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, Field

from plaudit.errors import InvalidArgumentError
from reward_service import Item, Reward, RewardServer, Scope, reward


async def one(item: Item) -> float:
    """Gives one.

    Always.
    """
    return 1.0


async def many(items: list[Item]) -> list[float]:
    """Gives ones."""
    return [1.0] * len(items)


def fields_of(error: pytest.ExceptionInfo[InvalidArgumentError]) -> list[str]:
    return [violation.field for violation in error.value.violations]


def test_defaults_come_from_the_function() -> None:
    made = reward(one)
    assert (made.name, made.description) == ("one", "Gives one.")
    assert made.scope is Scope.COMPLETION
    assert not made.takes_list
    assert made.config.schema_json == ""
    assert reward(many).takes_list


async def test_a_reward_can_be_called_as_the_function_it_is() -> None:
    assert await reward(many)([1, 2]) == [1.0, 1.0]


def test_a_sequence_of_items_is_a_list_and_an_item_of_a_config_is_an_item() -> None:
    async def sequence(items: Sequence[Item[Any]]) -> list[float]:
        """Is a list."""
        return []

    async def configured(item: Item[dict[str, int]]) -> float:
        """Is an item."""
        return 0.0

    async def by_name(items) -> list[float]:  # type: ignore[no-untyped-def]
        """Is a list by its name."""
        return []

    assert reward(sequence).takes_list
    assert not reward(configured).takes_list
    assert reward(by_name).takes_list


def test_a_sync_function_is_refused_with_the_way_out() -> None:
    def sync(item: Item) -> float:
        """Blocks."""
        return 1.0

    with pytest.raises(InvalidArgumentError, match=r"sync is not an async function.*asyncio\.to_thread"):
        reward(sync)  # type: ignore[type-var]


def test_a_sync_generator_and_an_async_generator_are_refused() -> None:
    def generator(item: Item):  # type: ignore[no-untyped-def]
        """Yields."""
        yield 1.0

    async def async_generator(item: Item):  # type: ignore[no-untyped-def]
        """Yields."""
        yield 1.0

    for function in (generator, async_generator):
        with pytest.raises(InvalidArgumentError, match="is not an async function"):
            reward(function)


def test_a_function_whose_argument_does_not_say_what_it_takes_is_refused() -> None:
    async def unclear(x) -> float:  # type: ignore[no-untyped-def]
        """Unclear."""
        return 1.0

    async def two(item: Item, other: int) -> float:
        """Takes two."""
        return 1.0

    for function in (unclear, two):
        with pytest.raises(InvalidArgumentError, match=r"annotated as `item: Item` or as `items: list"):
            reward(function)


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        Reward(
            one,
            name="Not A Name",
            description="",
            min_value=2.0,
            max_value=1.0,
            scope="group",
            concurrency=0,
            chunk_size=-1,
            config={"type": "no type"},
        )
    assert fields_of(error) == [
        "reward.name",
        "reward.description",
        "reward.min_value",
        "reward.concurrency",
        "reward.chunk_size",
        "reward.scope",
        "reward.config",
    ]


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), "1"])
def test_a_bound_is_a_finite_number(bound: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"reward.max_value: .* is no finite number"):
        Reward(one, max_value=bound)


def test_required_columns_are_a_list_and_not_text() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r'required_columns: is text; write a list, .* \["answer"\]'
    ):
        Reward(one, required_columns="answer")


def test_required_columns_may_follow_the_config() -> None:
    class Config(BaseModel):
        column: str = "answer"

    made = Reward(one, config=Config, required_columns=lambda config: [config.column])
    assert made.required_columns == ("answer",)
    assert made.columns_of(Config(column="solution")) == ("solution",)


def test_the_schema_of_a_model_is_told() -> None:
    class Config(BaseModel):
        tag: str = Field(description="Name of the tag.")

    schema = json.loads(reward(name="x", config=Config)(one).config.schema_json)
    assert schema["properties"]["tag"]["description"] == "Name of the tag."
    assert schema["required"] == ["tag"]


def test_two_rewards_of_one_name_and_functions_that_are_no_rewards_are_refused() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        RewardServer([reward(one), reward(one), many])  # type: ignore[list-item]
    assert fields_of(error) == ["rewards[1].name", "rewards[2]"]
    with pytest.raises(InvalidArgumentError, match="at least one reward"):
        RewardServer([])
