"""Scoring stored completions again: what is asked for, and where it stands."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from plaudit.types.jobs import RewardBinding


class RescoreStatus(StrEnum):
    """Where a rescore stands."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether it is over."""
        return self in (RescoreStatus.COMPLETED, RescoreStatus.FAILED, RescoreStatus.CANCELLED)


class RescoreSpec(BaseModel):
    """Which steps of a job are scored again, and with which rewards; every default filled in."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rewards: tuple[RewardBinding, ...] = Field(
        min_length=1,
        max_length=32,
        description="The rewards. Default: those of the job.",
        examples=[[{"server": "builtin", "reward": "exact_answer"}]],
    )
    from_step: int = Field(
        default=0, ge=0, lt=2**63, description="First step. 0: the first that is stored.", examples=[1]
    )
    to_step: int = Field(
        default=0, ge=0, lt=2**63, description="Last step. 0: the newest that is stored.", examples=[10]
    )
