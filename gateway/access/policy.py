"""Whom the gateway asks for a token, and how much it takes of each."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AccessLimits(BaseModel):
    """What one caller may take. They count where tokens are asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_second: float = Field(
        default=200.0,
        gt=0.0,
        le=1_000_000.0,
        allow_inf_nan=False,
        description="Requests of one token, in the long run; ten times as many for the role service.",
        examples=[200.0],
    )
    request_burst: int = Field(
        default=2000, ge=1, le=1_000_000, description="Requests of one token at once.", examples=[2000]
    )
    calls_at_once: int = Field(
        default=2000,
        ge=1,
        le=1_000_000,
        description="Open calls of one token, streams among them.",
        examples=[2000],
    )
    open_jobs: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Jobs of one token that are not over.",
        examples=[1000],
    )
    anonymous_requests_per_second: float = Field(
        default=50.0,
        gt=0.0,
        le=1_000_000.0,
        allow_inf_nan=False,
        description="Requests without a token (health, the OpenAPI document) of one address.",
        examples=[50.0],
    )
    refusals_per_minute: float = Field(
        default=60.0,
        gt=0.0,
        le=1_000_000.0,
        allow_inf_nan=False,
        description="Refused tokens of one address; above, it is told to wait.",
        examples=[60.0],
    )


class AccessPolicy(BaseModel):
    """Whether tokens are asked for at all, and the limits where they are."""

    model_config = ConfigDict(frozen=True)

    require_tokens: bool = Field(default=False, description="Whether every call needs a token.")
    limits: AccessLimits = Field(default_factory=AccessLimits, description="What one caller may take.")
