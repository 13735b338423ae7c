"""exact_answer: whether the completion's answer is the row's. docs/rewards/exact_answer.md describes it."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from plaudit.types.scoring import Examples, Failed, FailureCode, JsonValue, NotApplicable, Prompt, Scored
from plaudit.types.validation import shown
from reward_service._item import Item
from reward_service._reward import Answer, reward
from reward_service.rewards._beside import beside_the_loop
from reward_service.rewards._comparison import Expected, number_of
from reward_service.rewards._extraction import last_boxed, last_number, last_tagged
from reward_service.rewards._patterns import MAX_PATTERN_LENGTH, compile_pattern
from reward_service.rewards._special_tokens import tags_marks, turn_with_marks

_SHOWN_LENGTH = 100


class ExactAnswerConfig(BaseModel):
    """Where the answer stands, and what it is compared with."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    column: str = Field(
        default="answer",
        min_length=1,
        max_length=256,
        description="Dataset column with the expected answer, or a list of accepted ones.",
        examples=["answer"],
    )
    extract: Literal["tag", "boxed", "last_number", "regex", "whole"] = Field(
        default="tag", description="How the answer is found in the completion.", examples=["tag"]
    )
    tag: str = Field(
        default="answer",
        pattern=r"^[A-Za-z][A-Za-z0-9_:.-]{0,62}$",
        description='Name of the tag, for extract "tag".',
        examples=["answer"],
    )
    pattern: str | None = Field(
        default=None,
        max_length=MAX_PATTERN_LENGTH,
        validate_default=True,
        description='RE2 pattern whose first group is the answer, for extract "regex".',
        examples=["Answer: (.*)"],
    )
    ignore_case: bool = Field(
        default=False, description="Whether upper and lower case are the same.", examples=[True]
    )

    _pattern: Any = PrivateAttr(default=None)

    @field_validator("tag")
    @classmethod
    def _tag_is_read(cls, tag: str, info: ValidationInfo) -> str:
        if info.data.get("extract", "tag") != "tag":
            raise ValueError('it is read for extract "tag" alone; leave it out')
        return tag

    @field_validator("pattern")
    @classmethod
    def _pattern_has_group(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        extract = info.data.get("extract")
        if pattern is None:
            if extract == "regex":
                raise ValueError('extract "regex" needs it')
            return None
        if compile_pattern(pattern).groups < 1:
            raise ValueError("the pattern has no group; put the answer in parentheses")
        if extract not in ("regex", None):
            raise ValueError('it is read for extract "regex" alone; leave it out')
        return pattern

    def model_post_init(self, _: Any) -> None:
        """Compiles the pattern once."""
        if self.pattern is not None:
            self._pattern = compile_pattern(self.pattern)

    def answer_in(self, item: Item[Any]) -> str | None:
        """The answer of a completion, or None where there is none.

        Where the chat template began the assistant's turn, that beginning is read too, but for extract
        "whole" and "last_number": it is not the model's.
        """
        match self.extract:
            case "tag":
                return last_tagged(turn_with_marks(item, tags_marks(self.tag)), self.tag)
            case "boxed":
                return last_boxed(item.full_text)
            case "last_number":
                return last_number(item.text)
            case "regex":
                match = self._pattern.search(item.full_text)
                return None if match is None else match.group(1)
            case "whole":
                return item.text

    def turn_with(self, answer: str) -> str | None:
        """A turn of the assistant's that gives `answer` in this form; None where none can be written."""
        match self.extract:
            case "tag":
                closing = f"</{self.tag}>"
                return None if closing in answer else f"<{self.tag}>{answer}{closing}"
            case "boxed":
                return None if "{" in answer or "}" in answer else f"\\boxed{{{answer}}}"
            case "last_number":
                return None if number_of(answer) is None else answer
            case "regex":
                return None
            case "whole":
                return answer


def examples(prompt: Prompt, config: ExactAnswerConfig) -> Examples | None:
    """The row's answer in the configured form, and a wrong one; None where the form is a pattern."""
    value = prompt.columns.get(config.column)
    if isinstance(value, list):
        value = value[0] if value else None
    right = _written(value)
    good = None if right is None else config.turn_with(right)
    if right is None or good is None:
        return None
    number = number_of(right)
    wrong = f"not {right}" if number is None else str(number + 1)
    bad = config.turn_with(wrong)
    return Examples(good=(good,), bad=() if bad is None else (bad,))


def _written(value: JsonValue) -> str | None:
    """A value as a model would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, str | int | float) else None


@reward(
    description="1 where the completion's answer is the row's: numbers by value, text normalised; else 0.",
    min_value=0.0,
    max_value=1.0,
    required_columns=lambda config: (config.column,),
    config=ExactAnswerConfig,
    examples=examples,
)
async def exact_answer(items: list[Item[ExactAnswerConfig]]) -> list[Answer]:
    """1 or 0 for each completion."""
    expected: dict[int, Expected | NotApplicable | Failed] = {}

    def answer(item: Item[ExactAnswerConfig]) -> Answer:
        # Completions of one prompt share it, and what it expects.
        accepted = expected.get(id(item.prompt))
        if accepted is None:
            accepted = expected[id(item.prompt)] = _expected(item)
        return _compared(item, accepted) if isinstance(accepted, Expected) else accepted

    return await beside_the_loop(items, answer, costly=any(i.config.extract == "regex" for i in items))


def _expected(item: Item[ExactAnswerConfig]) -> Expected | NotApplicable | Failed:
    column = item.config.column
    value = item.columns[column]
    if value is None:
        return NotApplicable(f"column {column} of the row is null")
    try:
        return Expected(value, ignore_case=item.config.ignore_case)
    except ValueError as error:
        return Failed(FailureCode.INVALID, f"column {column}: {error}")


def _compared(item: Item[ExactAnswerConfig], expected: Expected) -> Scored:
    answer = item.config.answer_in(item)
    if answer is None:
        return Scored(0.0, explanation=f"no answer found by extract {item.config.extract}")
    if expected.accepts(answer):
        return Scored(1.0)
    value = item.columns[item.config.column]
    told = value if isinstance(value, str) else shown(value)
    return Scored(0.0, explanation=f"answer {_shown(answer)}, expected {_shown(told)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…")
