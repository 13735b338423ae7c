"""Settings of the trainer service: section [trainer] of plaudit.toml, PLAUDIT_TRAINER_ variables."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from plaudit.rpc import ListenSecurity, checked_listen_address
from plaudit.service import DEFAULT_ADDRESSES, ServiceSettings
from plaudit.types.addresses import BindAddress


class TrainerSettings(ServiceSettings):
    """How the trainer service listens, where it keeps its state, and how much it takes on."""

    section: ClassVar[str] = "trainer"

    security: ListenSecurity = Field(
        default_factory=ListenSecurity,
        description="Certificate, tokens, and who may call; needed beyond loopback.",
    )
    address: BindAddress = Field(
        default=DEFAULT_ADDRESSES.trainer,
        description="host:port of the gRPC service; port 0 takes a free one.",
        examples=["127.0.0.1:7432"],
    )
    artifact_root: Path | None = Field(
        default=None,
        description="Folder of datasets, checkpoints and completions. null: artifacts under data_dir.",
        examples=["/srv/plaudit/artifacts"],
    )
    max_concurrent_runs: int = Field(
        default=1, ge=1, le=256, description="Runs that are held at once.", examples=[1]
    )
    unsloth_python: Path | None = Field(
        default=None,
        description="Interpreter of an environment with unsloth and plaudit[trainer], in which jobs with "
        "use_unsloth are run. null: such jobs are refused.",
        examples=["/srv/unsloth/bin/python"],
    )
    linger_seconds: float = Field(
        default=20.0,
        ge=0.0,
        le=3600.0,
        description="Seconds that a run's process may live on after its last journal entry.",
        examples=[20.0],
    )

    _is_secure = field_validator("address")(checked_listen_address)

    @property
    def state_dir(self) -> Path:
        """Folder of the runs and of what the trainer remembers; owned by one process at a time."""
        return self.data_dir.expanduser().resolve() / "trainer"

    @property
    def artifacts(self) -> Path:
        """The artifact root, absolute."""
        root = self.artifact_root or self.data_dir / "artifacts"
        return root.expanduser().resolve()
