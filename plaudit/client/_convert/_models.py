"""Models and checkpoints."""

from __future__ import annotations

from plaudit.client import models
from plaudit.client._convert._reading import reads_answer
from plaudit.client._convert._values import time_from_proto
from plaudit.gateway.v1 import model_service_pb2 as pb

_STATUS_PREFIX = "MODEL_STATUS_"


_KIND_PREFIX = "MODEL_KIND_"


@reads_answer
def model_from_proto(message: pb.Model) -> models.Model:
    """A model."""
    return models.Model(
        id=message.id,
        name=message.name,
        job_id=message.job_id,
        base_model=message.base_model,
        step=message.step,
        attempt=message.attempt,
        is_final=message.is_final,
        kind=models.ModelKind(pb.ModelKind.Name(message.kind).removeprefix(_KIND_PREFIX).lower()),
        dtype=message.dtype,
        status=models.ModelStatus(pb.ModelStatus.Name(message.status).removeprefix(_STATUS_PREFIX).lower()),
        status_detail=message.status_detail,
        size_bytes=message.size_bytes,
        files=tuple(models.ModelFile(file.path, file.size_bytes, file.sha256) for file in message.files),
        created_at=time_from_proto(message, "created_at"),
    )


@reads_answer
def checkpoint_from_proto(message: pb.Checkpoint) -> models.Checkpoint:
    """A checkpoint."""
    return models.Checkpoint(
        id=message.id,
        job_id=message.job_id,
        step=message.step,
        attempt=message.attempt,
        size_bytes=message.size_bytes,
        file_count=message.file_count,
        has_adapters=message.has_adapters,
        created_at=time_from_proto(message, "created_at"),
    )
