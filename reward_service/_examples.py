"""Texts whose worth is known: what a reward itself calls good and bad answers, for a preflight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import structlog

from plaudit.errors import FieldViolation, InternalError, InvalidArgumentError
from plaudit.types.scoring import Examples, Prompt
from reward_service._outcomes import place_of, readable
from reward_service._reward import Reward
from reward_service._session import Selection

log = structlog.get_logger(__name__)

MAX_PROMPTS: Final = 256


class ExampleWriter:
    """Has the rewards of a server write examples."""

    def __init__(self, rewards: Mapping[str, Reward]) -> None:
        self._rewards = rewards

    def write(
        self, selection: Selection, prompts: Sequence[Prompt], unreadable: Sequence[FieldViolation]
    ) -> dict[str, Examples]:
        """Examples by group id; a prompt for which the reward has none is left out.

        `unreadable` is what was found wrong with the prompts already. Raises InvalidArgumentError with every
        wrong field, and InternalError where the reward's own code fails.
        """
        wrong = [*unreadable, *_wrong_prompts(prompts)]
        reward = self._rewards.get(selection.name)
        if reward is None:
            known = ", ".join(self._rewards)
            wrong.append(
                FieldViolation("reward.name", f'"{selection.name}" is not on offer; there are {known}')
            )
            raise InvalidArgumentError(wrong)
        try:
            config = reward.config.read(selection.config_json, "reward.config")
        except InvalidArgumentError as error:
            wrong.extend(error.violations)
        if wrong:
            raise InvalidArgumentError(wrong)
        if reward.examples is None:
            return {}
        written: dict[str, Examples] = {}
        for prompt in prompts:
            try:
                examples = reward.examples(prompt, config)
            except Exception as error:
                place = place_of(error, getattr(reward.examples, "__code__", None))
                log.error("a reward's examples raised", reward=reward.name, place=place, exc_info=error)
                what = f"raised {type(error).__name__} ({place}): {error}"
                raise _fault(reward.name, what) from None
            if examples is not None:
                written[prompt.group_id] = _checked(reward.name, examples)
        return written


def _wrong_prompts(prompts: Sequence[Prompt]) -> Iterator[FieldViolation]:
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        yield FieldViolation("groups", f"holds {len(prompts)} prompts; 1 to {MAX_PROMPTS} are needed")
    first_use: dict[str, int] = {}
    for index, prompt in enumerate(prompts):
        if first_use.setdefault(prompt.group_id, index) != index:
            yield FieldViolation(
                f"groups[{index}].group_id", f'"{prompt.group_id}" is that of another group too'
            )


def _checked(name: str, examples: object) -> Examples:
    if not isinstance(examples, Examples):
        raise _fault(name, f"returned {type(examples).__name__}; return Examples, or None where it has none")
    for text in (*examples.good, *examples.bad):
        if not isinstance(text, str):
            raise _fault(name, f"returned {type(text).__name__} for a text")
    return examples


def _fault(name: str, what: str) -> InternalError:
    return InternalError(readable(f"the examples of reward {name}: its function {what}"))
