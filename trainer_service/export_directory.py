"""The directory of an export that was asked for: what is to be done, and what came of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from plaudit.types.jobs import RunSpec
from plaudit.types.statuses import ErrorCode
from trainer_service.exported import ExportedModel, ModelForm, WeightType
from trainer_service.files import write_whole
from trainer_service.journal import RunError
from trainer_service.run_directory import ID_PATTERN, check_artifact_path

_REQUEST_FILE: Final = "request.json"
_RESULT_FILE: Final = "result.json"

ArtifactPath = Annotated[str, AfterValidator(check_artifact_path)]


class ExportRequest(BaseModel):
    """What ExportCheckpoint asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_id: str = Field(pattern=ID_PATTERN, description="Job of the checkpoint.", examples=["job_01"])
    spec: RunSpec = Field(description="With which it was trained.")
    checkpoint_uri: ArtifactPath = Field(
        description="Folder of the checkpoint.", examples=["jobs/job_01/attempt-1/checkpoint-000040"]
    )
    target_uri: ArtifactPath = Field(
        description="Folder that the model gets, below that of the job.",
        examples=["jobs/job_01/models/model_01"],
    )
    form: ModelForm = Field(description="The whole model, or adapters alone.", examples=["merged"])
    dtype: WeightType = Field(description="Type of the weights.", examples=["float32"])
    artifact_root: Path = Field(description="Folder of datasets, checkpoints and models.")

    @model_validator(mode="after")
    def _target_is_the_jobs(self) -> ExportRequest:
        if not self.target_uri.startswith(f"jobs/{self.job_id}/"):
            raise ValueError(f"target_uri must lie below jobs/{self.job_id}/")
        return self


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What came of an export: one of the two is None."""

    model: ExportedModel | None = None
    error: RunError | None = None


def make_export_directory(folder: Path, request: ExportRequest) -> None:
    """Makes `folder` anew, with the request in it. Raises OSError. Blocks."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    write_whole(folder / _REQUEST_FILE, request.model_dump_json(indent=2))


def read_request(folder: Path) -> ExportRequest:
    """What is to be exported. Raises OSError, or ValueError where it makes no sense."""
    return ExportRequest.model_validate_json((folder / _REQUEST_FILE).read_bytes())


def write_result(folder: Path, result: ExportResult) -> None:
    """Says what came of it."""
    write_whole(folder / _RESULT_FILE, json.dumps(asdict(result), indent=2))


def read_result(folder: Path) -> ExportResult | None:
    """What came of it, or None where nothing was said. Blocks."""
    try:
        values: dict[str, Any] = json.loads((folder / _RESULT_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    model, error = values["model"], values["error"]
    return ExportResult(
        None if model is None else ExportedModel.of(model),
        None if error is None else RunError(ErrorCode(error["code"]), error["message"]),
    )
