"""format_check: whether a completion has the required form. docs/rewards/format_check.md describes it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from plaudit.types.scoring import Examples, Failed, FailureCode, FinishReason, Prompt, Scored
from reward_service._item import Item
from reward_service._reward import Answer, reward
from reward_service.rewards._beside import beside_the_loop
from reward_service.rewards._json_check import JsonCheck
from reward_service.rewards._patterns import MAX_PATTERN_LENGTH, compile_pattern
from reward_service.rewards._special_tokens import tags_marks, turn_with_marks

_CONTENT = "an example"

TagName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_:.-]{0,62}$")]


@lru_cache(maxsize=32)
def _json_check(schema_json: str) -> JsonCheck:
    # A large schema takes a tenth of a second to check, and each config is checked and then used.
    return JsonCheck(json.loads(schema_json))


class FormatCheckConfig(BaseModel):
    """The form: tags, or a pattern, or a JSON Schema."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    pattern: str | None = Field(
        default=None,
        max_length=MAX_PATTERN_LENGTH,
        description="RE2 pattern to be found in the text, instead of tags.",
        examples=["^<answer>\\d+</answer>$"],
    )
    json_schema: dict[str, Any] | None = Field(
        default=None,
        description="JSON Schema that the text, read as JSON, must satisfy, instead of tags.",
        examples=[{"type": "object", "required": ["answer"]}],
    )

    tags: Annotated[tuple[TagName, ...], Field(min_length=1, max_length=16)] = Field(
        default=("think", "answer"),
        description="Names of the tags that must come once each, in this order, with content.",
        examples=[["think", "answer"]],
    )
    grading: Literal["strict", "graded"] = Field(
        default="strict",
        description='Tags: "strict" gives 1 or 0, "graded" partial credit on the way there.',
        examples=["graded"],
    )
    allow_text_outside: bool = Field(
        default=True, description="Tags: whether other text may stand outside of them.", examples=[True]
    )
    _pattern: Any = PrivateAttr(default=None)
    _json_check: JsonCheck | None = PrivateAttr(default=None)

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            compile_pattern(pattern)
        return pattern

    @field_validator("json_schema")
    @classmethod
    def _schema_holds(cls, schema: dict[str, Any] | None, info: ValidationInfo) -> dict[str, Any] | None:
        if schema is not None:
            try:
                _json_check(json.dumps(schema))
            except RecursionError:
                raise ValueError("the schema is nested too deep; name its parts under $defs") from None
            if info.data.get("pattern") is not None:
                raise ValueError("there is a pattern too; leave one of them out")
        return schema

    @field_validator("tags", "grading", "allow_text_outside")
    @classmethod
    def _tags_are_read(cls, value: Any, info: ValidationInfo) -> Any:
        for form in ("pattern", "json_schema"):
            if info.data.get(form) is not None:
                raise ValueError(
                    f"it holds for tags, and there is a {form} in their place; leave one of them out"
                )
        return value

    @field_validator("tags")
    @classmethod
    def _tags_differ(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(tags)) < len(tags):
            raise ValueError("a tag is named twice; each comes once")
        return tags

    def model_post_init(self, _: Any) -> None:
        """Compiles once what every completion is checked with."""
        if self.pattern is not None:
            self._pattern = compile_pattern(self.pattern)
        if self.json_schema is not None:
            self._json_check = _json_check(json.dumps(self.json_schema))

    def turn_of(self, item: Item[Any]) -> str:
        """What is looked at of a completion: tags also where they are special tokens of the model's."""
        if self.pattern is not None or self.json_schema is not None:
            return item.full_text
        return turn_with_marks(item, tags_marks(*self.tags))

    def score(self, text: str, *, truncated: bool) -> Answer:
        """The reward of a whole turn of the assistant's."""
        if self._pattern is not None or self._json_check is not None:
            return self._score_form(text, truncated)
        if self.grading == "graded":
            return graded_score(
                text, self.tags, truncated=truncated, allow_text_outside=self.allow_text_outside
            )
        fault = "truncated" if truncated else fault_in_tags(text, self.tags, self.allow_text_outside)
        return Scored(0.0, explanation=fault) if fault else Scored(1.0)

    def _score_form(self, text: str, truncated: bool) -> Answer:
        if truncated:
            return Scored(0.0, explanation="truncated")
        if self._json_check is None:
            return (
                Scored(1.0)
                if self._pattern.search(text)
                else Scored(0.0, explanation="no match of the pattern")
            )
        try:
            fault = self._json_check.fault_of(text)
        except ValueError as error:
            return Failed(FailureCode.INVALID, str(error))
        return Scored(0.0, explanation=fault) if fault else Scored(1.0)


def examples(prompt: Prompt, config: FormatCheckConfig) -> Examples | None:
    """Every tag once, in order, with content; and the content alone. None for a pattern or a schema."""
    if config.pattern is not None or config.json_schema is not None:
        return None
    good = "\n".join(f"<{tag}>{_CONTENT}</{tag}>" for tag in config.tags)
    return Examples(good=(good,), bad=(_CONTENT, f"<{config.tags[0]}></{config.tags[0]}>"))


@reward(
    description="Whether the completion has the required form: tags in order, a pattern, or a JSON Schema.",
    min_value=0.0,
    max_value=1.0,
    config=FormatCheckConfig,
    examples=examples,
)
async def format_check(items: list[Item[FormatCheckConfig]]) -> list[Answer]:
    """1 where the assistant's turn has the required form, else 0, or what is had of it."""
    costly = any(item.config.pattern is not None or item.config.json_schema is not None for item in items)
    return await beside_the_loop(
        items,
        lambda item: item.config.score(
            item.config.turn_of(item), truncated=item.completion.finish_reason is FinishReason.LENGTH
        ),
        costly=costly,
    )


def fault_in_tags(text: str, tags: tuple[str, ...], allow_text_outside: bool) -> str:
    """What is wrong with the tags in `text`, or "": each once, in order, with content.

    Every search runs on from where the last one ended, or once through the text: linear on any input.
    """
    position = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        start = text.find(opening)
        end = text.find(closing)
        if start < 0 or end < 0:
            return f"{opening if start < 0 else closing} is missing"
        if text.find(opening, start + 1) >= 0 or text.find(closing, end + 1) >= 0:
            return f"{opening} or {closing} comes twice"
        if start < position or end < start:
            return f"{opening if start < position else closing} comes too early"
        if not text[start + len(opening) : end].strip():
            return f"{opening} is empty"
        if not allow_text_outside and text[position:start].strip():
            return f"there is text before {opening}"
        position = end + len(closing)
    if not allow_text_outside and text[position:].strip():
        return "there is text after the last tag"
    return ""


def graded_score(text: str, tags: tuple[str, ...], allow_text_outside: bool, truncated: bool) -> Scored:
    """Partial credit: (present + once + in order + complete) / (3 * tags + 1).

    A tag is present where it is opened, then closed, with content; once where it is present and neither mark
    comes again; in order where it is present and comes after the ones that belong before it, which are in
    order too. complete is 1 where the strict check gives 1.
    """
    present = once = in_order = 0
    may_start_at: int | None = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        start = text.find(opening)
        end = text.find(closing, start + len(opening)) if start >= 0 else -1
        if end < 0 or not text[start + len(opening) : end].strip():
            may_start_at = None
            continue
        present += 1
        once += text.count(opening) == 1 and text.count(closing) == 1
        if may_start_at is not None and start >= may_start_at:
            in_order += 1
            may_start_at = end + len(closing)
        else:
            may_start_at = None
    complete = not truncated and not fault_in_tags(text, tags, allow_text_outside)
    count = len(tags)
    return Scored(
        (present + once + in_order + complete) / (3 * count + 1),
        metrics={
            "tags_present": present / count,
            "tags_once": once / count,
            "tags_in_order": in_order / count,
        },
    )
