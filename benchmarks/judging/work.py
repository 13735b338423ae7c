"""What is asked."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.types.scoring import ChatMessage, Completion, Prompt

CRITERION = "clarity"
GROUP_SIZE = 8
_CHARACTERS = 500


def questions(count: int) -> Iterator[tuple[Prompt, Completion]]:
    """So many completions, no two alike, in groups of eight."""
    for number in range(count):
        group = number // GROUP_SIZE
        prompt = Prompt(f"1-g{group}", (ChatMessage("user", f"Explain the sum {group} + {number}."),))
        text = f"Answer {number}. " + "Because it follows from what was said before. " * 20
        yield prompt, Completion(f"1-{number}", text[:_CHARACTERS], 100)
