"""Limits of a reward server."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ServerLimits(BaseModel):
    """What a server takes on at once, and how long it keeps what it has scored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int = Field(
        default=1024,
        ge=1,
        le=1_000_000,
        description="Most completions in flight in one session.",
        examples=[1024],
    )
    max_batch_completions: int = Field(
        default=4096, ge=1, le=1_000_000, description="Most completions in one batch.", examples=[4096]
    )
    result_retention_seconds: float = Field(
        default=60.0,
        ge=0.0,
        le=3600.0,
        description=(
            "How long work goes on and results are kept after a stream broke, in seconds. 0: not at all."
        ),
        examples=[60.0],
    )
    max_sessions: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="Most sessions with an open stream, and most single calls at once.",
        examples=[256],
    )
    batch_timeout_seconds: float = Field(
        default=600.0,
        gt=0.0,
        le=86_400.0,
        description="Time budget of a batch, or of a single call, that names none, in seconds.",
        examples=[600.0],
    )
    check_timeout_seconds: float = Field(
        default=4.0,
        gt=0.0,
        le=600.0,
        description=(
            "How long rewards may take to check their configs when a session opens, in seconds. A trainer "
            "waits 5 s for the whole of it."
        ),
        examples=[4.0],
    )
