"""Models, checkpoints, and their files."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.rest.objects._base import Listed, RestObject, Time


class DownloadFile(RestObject):
    """A file to download: `url` is absolute, authorises itself for an hour, and takes ranges."""

    path: str
    url: str
    size_bytes: int
    sha256: str


class ModelObject(RestObject):
    """A model: the export of a job's checkpoint. `download_url` is that of its weights, or of the index that
    names their files; null until it is available. `status_detail` says why it is not.
    """

    id: str
    object: Literal["model"] = "model"
    name: str
    source: Literal["training_job"] = "training_job"
    status: Literal["exporting", "available", "unavailable"]
    status_detail: str
    base_model: str
    training_job_id: str
    step: int
    attempt: int
    is_final: bool
    kind: Literal["full", "merged", "adapter"]
    artifact_type: Literal["full", "adapter"]
    dtype: str
    size_bytes: int
    download_url: str | None
    files: list[DownloadFile]
    created_at: Time


class ModelList(Listed[ModelObject]):
    """A page of models, newest first; `after=<last id>` asks for the next."""


class ModelSource(BaseModel):
    """What a model is made of, as clients of the dialect say it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["training_job"] = Field(description="A job, and nothing else.", examples=["training_job"])
    training_job_id: str = Field(description="A completed job.", examples=["job_01"])


class NewModel(BaseModel):
    """A checkpoint to export; or, as clients of the dialect ask for it, the model of a completed job:
    `source` and `name`, with `artifact` or without.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: str | None = Field(
        default=None, description="A checkpoint, or a job: its newest checkpoint.", examples=["job_01@120"]
    )
    source: dict[str, Any] | None = Field(
        default=None,
        description="The completed job whose model is asked for.",
        examples=[{"type": "training_job", "training_job_id": "job_01"}],
    )
    name: str | None = Field(
        default=None,
        description="With source. A model goes by the output_name of its job; another name has no effect.",
        examples=["adder"],
    )
    artifact: Literal["full", "adapter"] | None = Field(
        default=None,
        description='With source. "full": the whole model, as without it; "adapter": adapters alone.',
        examples=["full"],
    )
    form: str = Field(
        default="merged",
        description='"merged": the whole model; "adapter": adapters alone.',
        examples=["merged"],
    )
    dtype: str = Field(
        default="float32", description='Type of the weights: "float32" or "bfloat16".', examples=["float32"]
    )


class CheckpointObject(RestObject):
    """A checkpoint that is there: weights, and what it takes to go on training."""

    id: str
    object: Literal["checkpoint"] = "checkpoint"
    training_job_id: str
    step: int
    attempt: int
    status: Literal["ready"] = "ready"
    payload: Literal["resumable"] = "resumable"
    size_bytes: int
    file_count: int
    has_adapters: bool
    pinned: Literal[False] = False
    created_at: Time


class CheckpointList(Listed[CheckpointObject]):
    """A page of checkpoints, newest step first; `after=<last id>` asks for the next."""


class CheckpointDownload(RestObject):
    """The files of a checkpoint: what `from_pretrained` loads (weights), all (resumable), or adapters."""

    id: str
    object: Literal["checkpoint_download"] = "checkpoint_download"
    artifact: Literal["weights", "resumable", "adapter"]
    files: list[DownloadFile]
