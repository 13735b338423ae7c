"""The task: small sums of reasoning-gym, with examples of the form in the prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from real_model.parts import make_questions

TASK: Final = "chain_sum"
CONFIG: Final[dict[str, Any]] = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
INSTRUCTION: Final = "Give the result inside answer tags."
EXAMPLES: Final = 1
TRAINED: Final = 96
HELD_OUT: Final = 64
_SEED: Final = 20_26

Row = dict[str, Any]


def make_rows(folder: Path) -> tuple[list[Row], list[Row]]:
    """Rows to train on, and rows held out: no question is in both, nor among the examples in the prompt."""
    questions = make_questions(folder, TASK, CONFIG, size=3000, seed=_SEED)
    different = list({q["question"]: q for q in questions}.values())
    examples, rest = different[:EXAMPLES], different[EXAMPLES:]
    assert len(rest) >= TRAINED + HELD_OUT
    rows = [{"prompt": _prompt(examples, q["question"]), "answer": q["answer"]} for q in rest]
    return rows[HELD_OUT : HELD_OUT + TRAINED], rows[:HELD_OUT]


def _prompt(examples: list[dict[str, str]], question: str) -> list[dict[str, str]]:
    turns = [{"role": "system", "content": INSTRUCTION}]
    for example in examples:
        turns.append({"role": "user", "content": example["question"]})
        turns.append({"role": "assistant", "content": f"<answer>{example['answer']}</answer>"})
    return [*turns, {"role": "user", "content": question}]


REWARDS: Final[list[dict[str, Any]]] = [
    {"server": "builtin", "reward": "exact_answer", "weight": 0.5},
    {
        "server": "builtin",
        "reward": "format_check",
        "weight": 0.5,
        "config": {"tags": ["answer"], "allow_text_outside": False},
    },
]
