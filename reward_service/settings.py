"""Settings of the built-in reward server: section [reward] of plaudit.toml, PLAUDIT_REWARD_ variables."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plaudit.rpc import ListenSecurity, checked_listen_address
from plaudit.service import DEFAULT_ADDRESSES, ServiceSettings
from plaudit.types.addresses import BindAddress
from reward_service.judge.settings import JudgeSettings
from reward_service.limits import ServerLimits
from reward_service.sandbox.settings import SandboxSettings


class MathSettings(BaseModel):
    """Processes of math_answer. They start when the first session asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workers: int = Field(
        default=4, ge=1, le=256, description="Processes, and so answers compared at once.", examples=[4]
    )
    memory_mb: int = Field(
        default=1024,
        ge=256,
        le=1_048_576,
        description="Address space of one process, in MiB; what needs more fails.",
        examples=[1024],
    )


class RewardSettings(ServiceSettings):
    """Where the server listens, and what it takes on."""

    section: ClassVar[str] = "reward"

    security: ListenSecurity = Field(
        default_factory=ListenSecurity,
        description="Certificate, tokens, and who may call; needed beyond loopback.",
    )
    address: BindAddress = Field(
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
    math: MathSettings = Field(
        default_factory=MathSettings, description="Processes of the reward math_answer."
    )
    judge: JudgeSettings = Field(
        default_factory=JudgeSettings, description="Judges that jobs may name, by profiles."
    )
    sandbox: SandboxSettings = Field(
        default_factory=SandboxSettings, description="Processes that run the code of python_function."
    )

    _is_secure = field_validator("address")(checked_listen_address)
