"""What a reward is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from plaudit.types.scoring import Completion, JsonValue, Prompt, Purpose

ConfigT = TypeVar("ConfigT", default=Any)


@dataclass(slots=True)
class Item(Generic[ConfigT]):
    """One completion to score.

    `config` is the reward's configuration in this session: the pydantic model or the JSON object that the
    reward declared. `step` is the optimizer step that the completion belongs to, 0 where none was named;
    `purpose` what the score is for, None where that is not known; `job_id` the training job, or "".
    `deadline` is when the item ends as TIMEOUT, in the event loop's time, None where there is no such time.
    """

    prompt: Prompt
    completion: Completion
    config: ConfigT
    step: int = 0
    purpose: Purpose | None = None
    job_id: str = ""
    deadline: float | None = None

    @property
    def text(self) -> str:
        """The completion: decoded, without special tokens."""
        return self.completion.text

    @property
    def full_text(self) -> str:
        """The assistant's whole turn: what the chat template put at its start, then the completion."""
        return self.completion.prefill + self.completion.text

    @property
    def columns(self) -> Mapping[str, JsonValue]:
        """The other columns of the dataset row, with the types that they had there."""
        return self.prompt.columns
