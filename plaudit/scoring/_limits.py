"""How long and how often the scorer tries."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ScoringLimits(BaseModel):
    """Bounds on waiting and trying again. How long one batch may take is the reward's own timeout."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    retry_budget_seconds: float = Field(
        default=300.0,
        gt=0.0,
        le=86_400.0,
        allow_inf_nan=False,
        description=(
            "Seconds after a completion was first sent beyond which it is not sent again. One that could not "
            "be sent at all is given up when its server has scored nothing for as long."
        ),
    )
    max_attempts: int = Field(
        default=5, ge=1, le=100, description="Batches that one completion may travel in, the first included."
    )
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
