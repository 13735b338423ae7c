"""Models and checkpoints."""

from __future__ import annotations

from gateway.models.checkpoints import Checkpoint
from gateway.models.model import Model
from gateway.servicers._convert._values import time_to_proto
from plaudit.gateway.v1 import model_service_pb2 as pb


def model_to_proto(model: Model) -> pb.Model:
    """A model."""
    return pb.Model(
        id=model.id,
        name=model.name,
        job_id=model.job_id,
        base_model=model.base_model,
        step=model.step,
        attempt=model.attempt,
        is_final=model.is_final,
        kind=pb.ModelKind.Value(f"MODEL_KIND_{model.kind.name}"),
        dtype=model.dtype,
        status=pb.ModelStatus.Value(f"MODEL_STATUS_{model.status.name}"),
        status_detail=model.status_detail,
        size_bytes=model.size_bytes,
        files=[
            pb.ModelFile(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
            for file in model.files
        ],
        created_at=time_to_proto(model.created_at),
    )


def checkpoint_to_proto(checkpoint: Checkpoint) -> pb.Checkpoint:
    """A checkpoint."""
    return pb.Checkpoint(
        id=checkpoint.id,
        job_id=checkpoint.job_id,
        step=checkpoint.step,
        attempt=checkpoint.attempt,
        size_bytes=checkpoint.size_bytes,
        file_count=len(checkpoint.files_of("resumable")),
        has_adapters=checkpoint.has_adapters,
        created_at=time_to_proto(checkpoint.created_at),
    )
