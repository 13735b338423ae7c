"""Settings of the gateway: section [gateway] of plaudit.toml, PLAUDIT_GATEWAY_ variables."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from gateway.access import AccessLimits, AccessPolicy
from gateway.datasets import DEFAULT_MAX_UPLOAD_BYTES
from gateway.jobs import heartbeats
from gateway.jobs.trainer_access import ConfiguredTrainer, TrainerRegistration
from gateway.rewards import ConfiguredServer, Registration
from gateway.rewards.registry import DEFAULT_PAUSE_SECONDS
from plaudit.rpc import ListenTls, checked_listen_address
from plaudit.service import DEFAULT_ADDRESSES, ServiceSettings
from plaudit.types.addresses import BindAddress, HostName, is_loopback


class GatewaySettings(ServiceSettings):
    """Where the gateway listens, where it keeps its state, and whom it works with."""

    section: ClassVar[str] = "gateway"

    security: ListenTls = Field(
        default_factory=ListenTls,
        description="Certificate, and by which certificates callers are known; needed beyond loopback.",
    )
    grpc_address: BindAddress = Field(
        default=DEFAULT_ADDRESSES.gateway_grpc,
        description="host:port of the gRPC API; port 0 takes a free one.",
        examples=["127.0.0.1:7430"],
    )
    http_address: BindAddress = Field(
        default=DEFAULT_ADDRESSES.gateway_http,
        description="host:port of the REST API; port 0 takes a free one.",
        examples=["127.0.0.1:7431"],
    )
    artifact_root: Path | None = Field(
        default=None,
        description="Folder of datasets, checkpoints and completions. null: artifacts under data_dir.",
        examples=["/srv/plaudit/artifacts"],
    )
    require_tokens: bool = Field(
        default=False,
        description="Whether every call needs a token. Beyond loopback it does in any case.",
        examples=[True],
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        default=(),
        description="Names, besides loopback's, by which the REST API may be called.",
        examples=[["plaudit.example"]],
    )
    limits: AccessLimits = Field(
        default_factory=AccessLimits, description="What one caller may take, where tokens are asked for."
    )
    trainers: tuple[ConfiguredTrainer, ...] = Field(
        default=(TrainerRegistration(address=DEFAULT_ADDRESSES.trainer),),
        description="Trainers that jobs are given to: an address, or a table of address, tls, credential and "
        "plaintext.",
        examples=[["127.0.0.1:7432"]],
    )
    reward_servers: dict[str, ConfiguredServer] = Field(
        default={"builtin": Registration(addresses=(DEFAULT_ADDRESSES.reward,))},
        description="Reward servers, by name: a list of addresses, or a table of addresses, tls, credential "
        "and plaintext.",
        examples=[{"builtin": ["127.0.0.1:7433"]}],
    )
    reward_server_check_seconds: float = Field(
        default=DEFAULT_PAUSE_SECONDS,
        ge=0.1,
        le=3600.0,
        allow_inf_nan=False,
        description="Seconds between two questions to a reward server whether it serves.",
        examples=[DEFAULT_PAUSE_SECONDS],
    )
    max_upload_bytes: int = Field(
        default=DEFAULT_MAX_UPLOAD_BYTES,
        ge=1,
        description="Largest file that is taken as a dataset, in bytes.",
        examples=[DEFAULT_MAX_UPLOAD_BYTES],
    )
    dataset_roots: tuple[Path, ...] = Field(
        default=(),
        description="Folders below which files may be named as datasets by their path. Empty: none.",
        examples=[["/srv/data"]],
    )
    heartbeat_timeout_seconds: float = Field(
        default=heartbeats.DEFAULT_TIMEOUT_SECONDS,
        ge=1.0,
        le=86_400.0,
        allow_inf_nan=False,
        description="Seconds without a heartbeat after which a job that requires them is cancelled.",
        examples=[heartbeats.DEFAULT_TIMEOUT_SECONDS],
    )
    poll_seconds: float = Field(
        default=1.0,
        gt=0.0,
        le=60.0,
        allow_inf_nan=False,
        description="Seconds between two questions to a trainer what it runs.",
        examples=[1.0],
    )
    trainer_overdue_after_seconds: float = Field(
        default=2.0,
        gt=0.0,
        allow_inf_nan=False,
        description="Seconds without an answer after which a job says that its trainer is silent.",
        examples=[2.0],
    )
    trainer_lost_after_seconds: float = Field(
        default=600.0,
        gt=0.0,
        allow_inf_nan=False,
        description="Seconds without an answer after which another trainer may take over a job.",
        examples=[600.0],
    )
    drain_seconds: float = Field(
        default=5.0,
        ge=0.0,
        le=600.0,
        allow_inf_nan=False,
        description="Seconds that open calls are given to end when the gateway stops.",
        examples=[5.0],
    )

    _is_secure = field_validator("grpc_address", "http_address")(checked_listen_address)

    @property
    def listens_beyond_loopback(self) -> bool:
        """Whether other machines can reach it."""
        return not (is_loopback(self.grpc_address) and is_loopback(self.http_address))

    @property
    def access(self) -> AccessPolicy:
        """Whom it asks for a token."""
        return AccessPolicy(
            require_tokens=self.require_tokens or self.listens_beyond_loopback, limits=self.limits
        )

    @property
    def state_dir(self) -> Path:
        """Folder of the store; owned by one process at a time."""
        return self.data_dir.expanduser().resolve() / "gateway"

    @property
    def artifacts(self) -> Path:
        """The artifact root, absolute."""
        return (self.artifact_root or self.data_dir / "artifacts").expanduser().resolve()
