"""Settings of the sandbox: [reward.sandbox] of plaudit.toml, PLAUDIT_REWARD_SANDBOX as JSON."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class SandboxSettings(BaseModel):
    """How other people's reward code is run, and what it may use up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workers: int = Field(
        default=4,
        ge=1,
        le=256,
        description=(
            "Processes that run reward code, at once and over all sessions. One function has all but one of "
            "them at most, so that another finds one free."
        ),
        examples=[4],
    )
    python: Path | None = Field(
        default=None,
        description=(
            "Interpreter whose packages reward code may import, for example of a virtual environment of its "
            "own. Default: the one that runs the service."
        ),
        examples=["/opt/rewards/bin/python"],
    )
    bwrap: str = Field(
        default="bwrap", min_length=1, description="The bubblewrap program: its name, or its path."
    )
    allow_unsandboxed: bool = Field(
        default=False,
        description=(
            "Whether reward code may run without bubblewrap where that is missing or may not be used: it can "
            "then read files and use the network like any program of the same user."
        ),
        examples=[True],
    )
    memory_mb: int = Field(
        default=2048,
        ge=128,
        le=1_048_576,
        description="Address space of a process, and memory of all processes of a worker, in MiB.",
        examples=[2048],
    )
    processes: int = Field(
        default=16, ge=2, le=4096, description="Processes and threads of a worker.", examples=[16]
    )
    tmp_mb: int = Field(
        default=64,
        ge=1,
        le=65_536,
        description="Size of a worker's /tmp, which is in memory, and of the largest file, in MiB.",
        examples=[64],
    )
    open_files: int = Field(default=64, ge=16, le=65_536, description="Open files of a process.")
    output_kb: int = Field(
        default=1024,
        ge=1,
        le=1_048_576,
        description="What a call may print, in KiB.",
        examples=[1024],
    )
    load_seconds: float = Field(
        default=60.0,
        gt=0.0,
        le=3600.0,
        description="How long the source may take to be imported, in seconds.",
        examples=[60.0],
    )
    idle_seconds: float = Field(
        default=60.0,
        gt=0.0,
        le=86_400.0,
        description="How long a function stays loaded without being called, in seconds.",
        examples=[60.0],
    )
    first_uid: int = Field(
        default=61_000,
        ge=1,
        le=4_000_000_000,
        description=(
            "Where the service runs as root, worker n runs as user first_uid + n, which needs no account."
        ),
        examples=[61_000],
    )
