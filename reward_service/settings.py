"""Settings of the built-in reward server: section [reward] of plaudit.toml, PLAUDIT_REWARD_ variables."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from plaudit.service import DEFAULT_ADDRESSES, ServiceSettings
from plaudit.types.addresses import ListenAddress
from reward_service.limits import ServerLimits


class RewardSettings(ServiceSettings):
    """Where the server listens, and what it takes on."""

    section: ClassVar[str] = "reward"

    address: ListenAddress = Field(
        default=DEFAULT_ADDRESSES.reward,
        description="host:port to listen on; port 0 takes a free one.",
        examples=[DEFAULT_ADDRESSES.reward],
    )
    drain_grace_seconds: float = Field(
        default=10.0,
        ge=0.0,
        le=3600.0,
        description="How long accepted work is still served once the server is told to stop, in seconds.",
        examples=[10.0],
    )
    limits: ServerLimits = Field(
        default_factory=ServerLimits, description="What the server takes on at once, and keeps."
    )
