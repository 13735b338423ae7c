"""How a model comes to be: by a run that is done, or by a request."""

from __future__ import annotations

from datetime import datetime

from gateway.jobs.journal import ExportedModel, ModelExported
from gateway.models.model import MODELS_FOLDER, Model, ModelForm, ModelKind, ModelStatus, WeightType
from gateway.store.checkpoints import CheckpointRecord
from gateway.store.ids import new_id
from gateway.store.jobs import JobRecord


def final_model(record: JobRecord, attempt: int, told: ModelExported, time: datetime) -> Model:
    """The model that a run of the job has exported, or one that is not available, and why."""
    uri = f"jobs/{record.job.id}/attempt-{attempt}"
    exported = told.model or ExportedModel(f"{uri}/model", whole_kind(record), "float32", ())
    return Model(
        id=new_id("model"),
        name=record.job.spec.output_name,
        job_id=record.job.id,
        base_model=record.job.spec.base_model,
        attempt=attempt,
        step=told.step,
        is_final=True,
        kind=exported.kind,
        dtype=exported.dtype,
        status=ModelStatus.AVAILABLE if told.model else ModelStatus.UNAVAILABLE,
        status_detail=told.error.message if told.error else "",
        checkpoint_uri=f"{uri}/checkpoint-{told.step:06d}",
        uri=exported.uri,
        files=exported.files,
        created_at=time,
    )


def asked_model(
    record: JobRecord, checkpoint: CheckpointRecord, form: ModelForm, dtype: WeightType, time: datetime
) -> Model:
    """A model whose export is to begin."""
    model_id = new_id("model")
    return Model(
        id=model_id,
        name=record.job.spec.output_name,
        job_id=record.job.id,
        base_model=record.job.spec.base_model,
        attempt=checkpoint.attempt,
        step=checkpoint.step,
        is_final=False,
        kind=ModelKind.ADAPTER if form == "adapter" else whole_kind(record),
        dtype=dtype,
        status=ModelStatus.EXPORTING,
        status_detail="",
        checkpoint_uri=checkpoint.uri,
        uri=f"jobs/{record.job.id}/{MODELS_FOLDER}/{model_id}",
        files=(),
        created_at=time,
    )


def whole_kind(record: JobRecord) -> ModelKind:
    """What a whole model of this job is."""
    trained_adapters = record.job.spec.hyperparameters.lora_rank is not None
    return ModelKind.MERGED if trained_adapters else ModelKind.FULL
