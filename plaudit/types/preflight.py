"""What a preflight saw before a job trains: the words of trainer, gateway, SDK and command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

PreflightMode: TypeAlias = Literal["stop", "warn", "off"]
"""Whether something critical stops the job or only warns; or no preflight at all."""

Severity: TypeAlias = Literal["info", "warning", "critical"]

Share = Field(default=None, ge=0.0, le=1.0, allow_inf_nan=False)
Number = Field(default=None, allow_inf_nan=False)


class PreflightReward(BaseModel):
    """What was seen of one reward, named as in the job. A mean is None where nothing was scored.

    `known_good_mean` and `known_bad_mean` are over texts that the reward itself wrote, `canary_mean` over
    completions that are no answer. `seconds_per_step` estimates the scoring of one step's completions.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    scored_count: int = 0
    not_applicable_count: int = 0
    failed_count: int = 0
    mean: float | None = Number
    min: float | None = Number
    max: float | None = Number
    known_good_mean: float | None = Number
    known_bad_mean: float | None = Number
    canary_mean: float | None = Number
    seconds_per_step: float | None = Number


class PreflightFinding(BaseModel):
    """Something that was found: `seen` says what, with numbers, and `advice` what to change, for people.

    `kind` is for programs (docs/preflight.md lists them); `reward` is "" where it is about the whole job;
    one that is critical stops the job where its `preflight` is "stop".
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    severity: Severity
    reward: str = ""
    seen: str
    advice: str
    evidence: Mapping[str, float] = Field(default_factory=dict)

    @property
    def message(self) -> str:
        """What was seen and what to change, in one line."""
        return f"{self.seen}; {self.advice}"


class PreflightSample(BaseModel):
    """A completion that the base model wrote, cut where it is long; `scores` by name of the reward."""

    model_config = ConfigDict(frozen=True)

    prompt_text: str
    completion_text: str
    truncated: bool
    scores: Mapping[str, float] = Field(default_factory=dict)


class PreflightReport(BaseModel):
    """What the newest preflight of a job saw. Findings come with the worst first.

    `informative_group_fraction`, from 0 to 1, is the share of groups expected to hold different rewards, and
    so to teach something; None where it is not known. Fields of a newer version are passed over.
    """

    model_config = ConfigDict(frozen=True)

    prompt_count: int = 0
    completion_count: int = 0
    truncated_count: int = 0
    empty_count: int = 0
    seconds: float = 0.0
    informative_group_fraction: float | None = Share
    rewards: tuple[PreflightReward, ...] = ()
    findings: tuple[PreflightFinding, ...] = ()
    samples: tuple[PreflightSample, ...] = ()

    @property
    def critical(self) -> tuple[PreflightFinding, ...]:
        """The findings that stop a job."""
        return tuple(finding for finding in self.findings if finding.severity == "critical")
