"""How long the scorer waits for the other side."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ScoringLimits(BaseModel):
    """Bounds on waiting. How long a batch may take, and how often it is tried, is said by the job."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    client_grace_seconds: float = Field(
        default=5.0,
        ge=0.0,
        le=600.0,
        allow_inf_nan=False,
        description="Seconds after a batch's timeout at which the scorer gives up on it.",
    )
    connect_timeout_seconds: float = Field(
        default=5.0,
        gt=0.0,
        le=600.0,
        allow_inf_nan=False,
        description="Seconds for each part of connecting: name, description, opening of the session.",
    )
