"""What every path carries: completions of 2 kB, and their reward."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.types.scoring import ChatMessage, Completion, FinishReason, Prompt

TEXT_CHARACTERS = 2000
"""On average: lengths differ, so that a score says to which completion it belongs."""

GROUP_SIZE = 8
FRAME = 256
"""Completions that travel together in the scorer's frames where so many wait, and so in the echo's."""

REWARD = "length_share"
PACED_REWARD = "paced_length_share"
PACED_SECONDS = 0.025
"""For a call of up to 64 completions, one call at a time."""

_LENGTHS = 97
_LONGEST = TEXT_CHARACTERS + _LENGTHS // 2


def length_share(text: str) -> float:
    """The reward, as cheap as one can be: what is measured is the way to it."""
    return len(text) / _LONGEST


def text_of(index: int) -> str:
    """The completion's text."""
    words = f"completion {index} of the benchmark says that twelve and thirty make forty-two; "
    length = _LONGEST - index % _LENGTHS
    return (words * (length // len(words) + 1))[:length]


def rollout(step: int, count: int) -> Iterator[tuple[Prompt, list[Completion]]]:
    """`count` completions as a trainer has them after sampling, a group after the other."""
    for group in range(count // GROUP_SIZE):
        question = f"What is {group} + {step}?"
        prompt = Prompt(
            group_id=f"{step}-g{group}",
            messages=(ChatMessage("user", question),),
            columns={"answer": group + step},
            text=f"<|user|>{question}<|assistant|>",
        )
        indexes = range(group * GROUP_SIZE, (group + 1) * GROUP_SIZE)
        yield (
            prompt,
            [
                Completion(
                    completion_id=f"{step}-{index}",
                    text=text_of(index),
                    token_count=TEXT_CHARACTERS // 4,
                    finish_reason=FinishReason.STOP,
                )
                for index in indexes
            ],
        )
