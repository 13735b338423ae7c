"""A reward server for tests: rewards that a preflight should pass, and rewards that it should stop."""

import asyncio
import re

from reward_service import Examples, Failed, FailureCode, Item, Purpose, reward, serve


def right(prompt, config):
    return Examples(good=(f"It is {prompt.columns['answer']}.",), bad=("It is 1000.",))


def is_right(item: Item) -> bool:
    numbers = re.findall(r"\d+", item.text)
    return bool(numbers) and int(numbers[-1]) == item.columns["answer"]


@reward(description="1 where the sum is right.", min_value=0, max_value=1, examples=right)
async def sound(item: Item) -> float:
    return float(is_right(item))


def in_other_words(prompt, config):
    return Examples(good=(f"Beyond doubt {prompt.columns['answer']}!",))


@reward(description="1 where the sum is told in words that the model does not know.", examples=in_other_words)
async def never_earned(item: Item) -> float:
    return float(item.text == f"Beyond doubt {item.columns['answer']}!")


@reward(description="0 for all, as where the scorer fails behind an except.", examples=right)
async def always_zero(item: Item) -> float:
    return 0.0


@reward(description="Not a number.")
async def not_a_number(item: Item) -> float:
    return float("nan")


@reward(description="Beyond its range.", min_value=0, max_value=1)
async def beyond(item: Item) -> float:
    return 7.0


@reward(description="Likes a colon.", min_value=0, max_value=1, examples=right)
async def likes_colons(item: Item) -> float:
    return 1.0 if item.text in ("", ":") else float(is_right(item))


@reward(description="Its key was refused.")
async def refused(item: Item) -> Failed:
    return Failed(FailureCode.EXHAUSTED, "the key JUDGE_KEY was refused")


@reward(description="Half a minute for each of a preflight's texts.")
async def sleepy(item: Item) -> float:
    await asyncio.sleep(30.0 if item.purpose is Purpose.PREFLIGHT else 0.0)
    return 1.0


@reward(description="Ranks the completions of a prompt by length.", scope="group")
async def shortest(items: list[Item]) -> list[float]:
    order = sorted(range(len(items)), key=lambda n: (len(items[n].text), n))
    return [1.0 - order.index(n) / len(items) for n in range(len(items))]


@reward(description="Its examples are broken.", examples=lambda prompt, config: {}["gone"])
async def bad_examples(item: Item) -> float:
    return float(len(item.text) % 3)


if __name__ == "__main__":
    serve(
        [
            sound, never_earned, always_zero, not_a_number, beyond, likes_colons, refused, sleepy, shortest,
            bad_examples,
        ],
        name="probed",
    )  # fmt: skip
