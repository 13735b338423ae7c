"""math_answer: whether the answer is the row's as mathematics. docs/rewards/math_answer.md describes it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

import reward_service.workers
from plaudit.errors import FieldViolation, UnavailableError
from plaudit.types.scoring import (
    Examples,
    Failed,
    FailureCode,
    JsonValue,
    NotApplicable,
    Prompt,
    Scored,
)
from reward_service._item import Item
from reward_service._reward import Answer, Reward, reward
from reward_service.rewards._comparison import kind_of
from reward_service.rewards._extraction import last_boxed, last_tagged
from reward_service.rewards._math_text import (
    is_plain_number,
    tidied_answer,
    tidied_gold,
    tidied_text,
    without_exponents,
)
from reward_service.rewards._special_tokens import tags_marks, turn_with_marks
from reward_service.settings import MathSettings
from reward_service.workers import Canary, WorkerDiedError, WorkerPool, WorkerTimeoutError

_WORKER: Final = Path(reward_service.workers.__file__).with_name("math_worker.py")
_MAX_EXPECTED_LENGTH: Final = 2_000
_MAX_EXPECTED_COUNT: Final = 16
_SHOWN_LENGTH: Final = 100

CANARIES: Final = (
    Canary({"gold": ["\\frac{1}{2}"], "answer": "0.5"}, {"outcome": "equal"}),
    Canary({"gold": ["\\frac{1}{2}"], "answer": "0.4"}, {"outcome": "different"}),
    Canary({"gold": ["(x+1)^2"], "text": "So it is $x^2 + 2x + 1$."}, {"outcome": "equal"}),
    Canary({"gold": ["7"], "text": "I do not know."}, {"outcome": "no_answer"}),
)
"""Known answers: a worker that verifies every answer, or none, is never asked for a score."""


class MathAnswerConfig(BaseModel):
    """Where the answer stands, what it is compared with, and how long that may take."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    column: str = Field(
        default="answer",
        min_length=1,
        max_length=256,
        description="Dataset column with the expected answer, or a list of accepted ones.",
        examples=["answer"],
    )
    extract: Literal["auto", "boxed", "tag"] = Field(
        default="auto",
        description='How the answer is found in the completion; "auto" leaves it to math-verify.',
        examples=["boxed"],
    )
    tag: str = Field(
        default="answer",
        pattern=r"^[A-Za-z][A-Za-z0-9_:.-]{0,62}$",
        description='Name of the tag, for extract "tag".',
        examples=["answer"],
    )
    timeout_seconds: float = Field(
        default=5.0,
        ge=0.1,
        le=60.0,
        allow_inf_nan=False,
        description="Most seconds that one completion may take; then it fails as a timeout.",
        examples=[5.0],
    )
    max_characters: int = Field(
        default=10_000,
        ge=100,
        le=100_000,
        description="Characters at the end of the completion that are read, and most of an answer.",
        examples=[10_000],
    )

    @field_validator("tag")
    @classmethod
    def _tag_is_read(cls, tag: str, info: ValidationInfo) -> str:
        if info.data.get("extract") in ("auto", "boxed"):
            raise ValueError('it is read for extract "tag" alone; leave it out')
        return tag


@asynccontextmanager
async def open_math_answer(settings: MathSettings) -> AsyncIterator[Reward]:
    """The reward, with its processes while the context is open."""
    command = [sys.executable, "-I", str(_WORKER), str(os.getpid()), str(settings.memory_mb << 20)]
    async with WorkerPool("math_answer", command, size=settings.workers, canaries=CANARIES) as pool:
        yield math_answer(pool, settings.workers)


def math_answer(pool: WorkerPool, concurrency: int) -> Reward:
    """The reward over a pool, `concurrency` completions at once."""

    async def check(config: MathAnswerConfig) -> Sequence[FieldViolation]:
        if find_spec("math_verify") is None:
            missing = "math_answer needs math-verify beside the reward server: pip install 'plaudit[math]'"
            return [FieldViolation("", missing)]
        await pool.ready()
        return []

    @reward(
        name="math_answer",
        description="1 where the completion's answer equals the row's as mathematics, else 0.",
        min_value=0.0,
        max_value=1.0,
        required_columns=lambda config: (config.column,),
        config=MathAnswerConfig,
        check=check,
        examples=examples,
        concurrency=concurrency,
    )
    async def score(item: Item[MathAnswerConfig]) -> Answer:
        expected = _expected(item.columns[item.config.column], item.config.column)
        if not isinstance(expected, list):
            return expected
        question = _question(item)
        if isinstance(question, Scored):
            return question
        timeout = item.config.timeout_seconds
        try:
            reply = await pool.ask(_tidied(expected, question), timeout)
        except WorkerTimeoutError:
            return Failed(FailureCode.TIMEOUT, f"not compared within {timeout:g} s")
        except WorkerDiedError as error:
            return Failed(FailureCode.INTERNAL, f"{error}, while it compared this answer")
        except UnavailableError as error:
            return Failed(FailureCode.UNAVAILABLE, error.message, error.retry_after)
        return _answer(reply, item.config.column, expected)

    return score


def examples(prompt: Prompt, config: MathAnswerConfig) -> Examples | None:
    """The row's answer in the configured form, and none; None where the row has no answer."""
    expected = _expected(prompt.columns.get(config.column), config.column)
    if not isinstance(expected, list):
        return None
    opening, closing = (
        (f"<{config.tag}>", f"</{config.tag}>") if config.extract == "tag" else ("\\boxed{", "}")
    )
    return Examples(good=(f"{opening}{expected[0]}{closing}",), bad=(f"{opening}{closing}",))


def _expected(value: JsonValue, column: str) -> list[str] | NotApplicable | Failed:
    """What the row expects, as texts that are mathematics."""
    if value is None:
        return NotApplicable(f"column {column} of the row is null")
    values = value if isinstance(value, list) else [value]
    texts = []
    for accepted in values:
        if isinstance(accepted, str):
            texts.append(accepted)
        elif _is_number(accepted):
            # By the shortest decimals that are this float; 1e-05 would be read as e - 5.
            texts.append(format(Decimal(repr(accepted) if isinstance(accepted, float) else accepted), "f"))
        else:
            return Failed(
                FailureCode.INVALID,
                f"column {column} holds {kind_of(accepted)}; it holds a number, or mathematics as text",
            )
    if not 0 < len(texts) <= _MAX_EXPECTED_COUNT:
        return Failed(
            FailureCode.INVALID,
            f"column {column} holds {len(texts)} answers; 1 to {_MAX_EXPECTED_COUNT} can be compared with",
        )
    if (longest := max(map(len, texts))) > _MAX_EXPECTED_LENGTH:
        return Failed(
            FailureCode.INVALID,
            f"column {column} holds an answer of {longest:,} characters; at most {_MAX_EXPECTED_LENGTH:,} "
            "can be compared with",
        )
    return texts


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _question(item: Item[MathAnswerConfig]) -> dict[str, str] | Scored:
    """What a worker is asked, or 0 where there is no answer to ask about."""
    config = item.config
    if config.extract == "auto":
        return {"text": item.text[-config.max_characters :]}
    answer = (
        last_boxed(item.full_text)
        if config.extract == "boxed"
        else last_tagged(turn_with_marks(item, tags_marks(config.tag)), config.tag)
    )
    if answer is None:
        return Scored(0.0, explanation=f"no answer found by extract {config.extract}")
    if len(answer) > config.max_characters:
        return Scored(
            0.0, explanation=f"the answer has {len(answer)} characters, of at most {config.max_characters}"
        )
    return {"answer": answer}


def _tidied(expected: list[str], question: dict[str, str]) -> dict[str, Any]:
    """What a worker is asked, its texts in the form that math-verify reads aright."""
    golds = [tidied_gold(text) for text in expected]
    numbers = any(map(is_plain_number, golds))
    request: dict[str, Any] = {"gold": golds}
    for kind, text in question.items():
        tidy = tidied_text(text) if kind == "text" else tidied_answer(text)
        request[kind] = without_exponents(tidy) if numbers else tidy
    return request


def _answer(reply: Any, column: str, expected: list[str]) -> Answer:
    match reply["outcome"]:
        case "equal":
            return Scored(1.0)
        case "different":
            return Scored(0.0, explanation=f"answer {_shown(reply['found'])}, expected {_shown(expected[0])}")
        case "no_answer":
            return Scored(0.0, explanation="no mathematics found")
        case "gold_unreadable":
            return Failed(
                FailureCode.INVALID,
                f"column {column}: {_shown(reply['gold'])} cannot be read as mathematics; mend it, or use "
                "exact_answer for words",
            )
        case "out_of_memory":
            return Failed(
                FailureCode.INTERNAL,
                "the comparison needs more memory than it has; raise memory_mb in [reward.math], where "
                "answers are that large",
            )
        case _:
            return Failed(FailureCode.INVALID, str(reply["error"]))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…")
