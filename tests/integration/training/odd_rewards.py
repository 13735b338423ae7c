"""A reward server for tests: rewards that depend on text and id alone, some of which fail."""

import asyncio
import re

from reward_service import Failed, FailureCode, Item, NotApplicable, reward, serve


def index_of(item: Item) -> int:
    return int(item.completion.completion_id.split("-")[1])


@reward(description="1 where the sum is right, in whatever words.")
async def sum_is_right(item: Item) -> float:
    numbers = re.findall(r"\d+", item.text)
    return float(bool(numbers) and int(numbers[-1]) == item.columns["answer"])


@reward(description="1 for the right sum in brackets alone, which the embedded model never writes.")
async def bracketed_sum(item: Item) -> float:
    return float(item.text == f"[{item.columns['answer']}]")


@reward(description="Length in characters, between 0 and 1.")
async def brevity(item: Item) -> float:
    return 1.0 / (1 + len(item.text))


@reward(description="Fails for a third of the completions.")
async def flaky(item: Item) -> float | Failed:
    if index_of(item) % 3 == 0:
        return Failed(FailureCode.INTERNAL, "the scorer lost its mind")
    return float(index_of(item) % 5)


@reward(description="Fails always.")
async def broken(item: Item) -> Failed:
    return Failed(FailureCode.INTERNAL, "broken")


@reward(description="Says that its budget is spent from step 2 on.")
async def dear(item: Item) -> float | Failed:
    if item.step >= 2:
        return Failed(FailureCode.EXHAUSTED, "budget of 1 EUR is spent")
    return float(index_of(item) % 2)


@reward(description="Not a number, for odd ones.")
async def nan_for_odd(item: Item) -> float:
    return float("nan") if index_of(item) % 2 else float(index_of(item) % 4)


@reward(description="Applies to even ones only.")
async def even_only(item: Item) -> float | NotApplicable:
    return NotApplicable("odd") if index_of(item) % 2 else 1.0


@reward(description="Takes half a minute from step 2 on.")
async def slow(item: Item) -> float:
    await asyncio.sleep(30.0 if item.step > 1 else 0.0)
    return float(index_of(item) % 2)


if __name__ == "__main__":
    serve(
        [sum_is_right, bracketed_sum, brevity, flaky, broken, dear, nan_for_odd, even_only, slow],
        name="odd",
        version="1",
    )
