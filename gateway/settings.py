"""Settings of the gateway: section [gateway] of plaudit.toml, PLAUDIT_GATEWAY_ variables."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from gateway.datasets import DEFAULT_MAX_UPLOAD_BYTES
from plaudit.service import DEFAULT_ADDRESSES, ServiceSettings
from plaudit.types.addresses import Address, ListenAddress


class GatewaySettings(ServiceSettings):
    """Where the gateway listens, where it keeps its state, and whom it works with."""

    section: ClassVar[str] = "gateway"

    grpc_address: ListenAddress = Field(
        default=DEFAULT_ADDRESSES.gateway_grpc,
        description="host:port of the gRPC API; port 0 takes a free one.",
        examples=["127.0.0.1:7430"],
    )
    http_address: ListenAddress = Field(
        default=DEFAULT_ADDRESSES.gateway_http,
        description="host:port of the REST API; port 0 takes a free one.",
        examples=["127.0.0.1:7431"],
    )
    artifact_root: Path | None = Field(
        default=None,
        description="Folder of datasets, checkpoints and completions. null: artifacts under data_dir.",
        examples=["/srv/plaudit/artifacts"],
    )
    trainers: tuple[Address, ...] = Field(
        default=(DEFAULT_ADDRESSES.trainer,),
        description="Addresses of the trainers that jobs are given to.",
        examples=[["127.0.0.1:7432"]],
    )
    reward_servers: dict[str, tuple[Address, ...]] = Field(
        default={"builtin": (DEFAULT_ADDRESSES.reward,)},
        description="Addresses of the replicas of reward servers, by name.",
        examples=[{"builtin": ["127.0.0.1:7433"]}],
    )
    max_upload_bytes: int = Field(
        default=DEFAULT_MAX_UPLOAD_BYTES,
        ge=1,
        description="Largest file that is taken as a dataset, in bytes.",
        examples=[DEFAULT_MAX_UPLOAD_BYTES],
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

    @property
    def state_dir(self) -> Path:
        """Folder of the store; owned by one process at a time."""
        return self.data_dir.expanduser().resolve() / "gateway"

    @property
    def artifacts(self) -> Path:
        """The artifact root, absolute."""
        return (self.artifact_root or self.data_dir / "artifacts").expanduser().resolve()
