"""A reward server made with the kit.

    python examples/python/kit_reward_server.py --address 127.0.0.1:50061
    plaudit reward-server add mine 127.0.0.1:50061

Then a job may ask for `{"server": "mine", "reward": "within_length", "config": {"max_words": 50}}`.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from reward_service import Answer, Failed, FailureCode, Item, Scored, reward, serve


class LengthConfig(BaseModel):
    """What a job configures."""

    max_words: int = Field(default=100, ge=1, description="Longest completion, in words.", examples=[100])


@reward(min_value=0.0, max_value=1.0, config=LengthConfig)
async def within_length(item: Item[LengthConfig]) -> float:
    """1 where the completion has at most max_words words, else 0."""
    return 1.0 if len(item.text.split()) <= item.config.max_words else 0.0


@reward(min_value=-1.0, max_value=0.0, required_columns=["answer"])
async def distance(items: list[Item]) -> list[Answer]:
    """Minus the relative error of the last word, taken for a number. Over a list, which is the fast way."""
    return [distance_of(item) for item in items]


def distance_of(item: Item) -> Answer:
    """None leaves an item out, Failed says that it could not be scored; neither is the number 0."""
    target = item.columns["answer"]
    if target is None:
        return None
    if not isinstance(target, int | float):
        return Failed(FailureCode.INVALID, f"column answer holds {target!r}, which is no number")
    words = item.text.split()
    try:
        found = float(words[-1].rstrip("."))
    except (IndexError, ValueError):
        return Scored(-1.0, explanation="the completion does not end with a number")
    error = min(1.0, abs(found - target) / max(1.0, abs(target)))
    return Scored(-error, metrics={"found": found}, explanation=f"{found:g} for {target:g}")


if __name__ == "__main__":
    serve([within_length, distance], name="kit-example", version="1.0.0")
