"""A trainer's exports: one process at a time, asked for again and again, and never half a model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plaudit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.statuses import ErrorCode
from trainer_service import _convert
from trainer_service.export_directory import ExportRequest, ExportResult
from trainer_service.exported import ExportedModel
from trainer_service.exports import Exports
from trainer_service.launchers.local import LocalLauncher
from trainer_service.launchers.processes import processes_of

PROGRAM = Path(__file__).with_name("scripted_export.py")
LAUNCHER = LocalLauncher((sys.executable, str(PROGRAM)))


def request(root: Path, script: str, target: str = "model_1", **changes: Any) -> ExportRequest:
    message = pb.ExportCheckpointRequest(
        **{
            "job_id": "job_1",
            "spec_json": SPEC.replace("SCRIPT", script),
            "checkpoint_uri": "jobs/job_1/attempt-1/checkpoint-000002",
            "target_uri": f"jobs/job_1/models/{target}",
            "form": "merged",
            "dtype": "float32",
            **changes,
        }
    )
    return _convert.export_request(message, root)


SPEC = """{"base_model": "SCRIPT", "output_name": "adder", "method": "sft", "hyperparameters": {},
"dataset": {"uri": "datasets/ab.parquet", "sha256": "ab", "row_count": 64}, "rewards": []}"""


@pytest.fixture
async def exports(tmp_path: Path) -> AsyncIterator[Exports]:
    exports = await Exports.open(tmp_path / "exports", LAUNCHER)
    yield exports
    await exports.stop()


async def result_of(exports: Exports, asked: ExportRequest) -> ExportResult:
    async with asyncio.timeout(60):
        while (progress := await exports.ask(asked)).result is None:  # noqa: ASYNC110  # it can only be asked
            await asyncio.sleep(0.02)
        return progress.result


async def busy_with(exports: Exports, asked: ExportRequest) -> None:
    async with asyncio.timeout(60):
        while (await exports.ask(asked)).detail != "half of it is written":  # noqa: ASYNC110  # the same
            await asyncio.sleep(0.02)


async def test_an_export_is_made_once_however_often_it_is_asked_for(exports: Exports, tmp_path: Path) -> None:
    asked = request(tmp_path, "waits")
    await busy_with(exports, asked)
    await asyncio.gather(*(exports.ask(asked) for _ in range(20)))
    assert len(processes_of(next((tmp_path / "exports").iterdir()))) == 2  # the keeper and the export
    with pytest.raises(ResourceExhaustedError) as busy:
        await exports.ask(request(tmp_path, "writes", "model_2"))
    assert (busy.value.reason, busy.value.retry_after) == ("EXPORT_BUSY", 2.0)
    with pytest.raises(FailedPreconditionError) as reused:
        await exports.ask(request(tmp_path, "writes"))
    assert reused.value.reason == "TARGET_URI_REUSED"
    (tmp_path / "go on").touch()
    model = ExportedModel("jobs/job_1/models/model_1", "full", "float32", ())
    assert await result_of(exports, asked) == ExportResult(model=model)
    assert (await result_of(exports, request(tmp_path, "writes", "model_2"))).model is not None
    # Another service on the same root finds it.
    other = await Exports.open(tmp_path / "other", LAUNCHER)
    assert (await other.ask(asked)).result == ExportResult(model=model)
    assert list((tmp_path / "exports").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("fails", ErrorCode.MODEL_ERROR, "it is odd"),
        ("dies", ErrorCode.PROCESS_DIED, "ended with signal 9; its last output was:\nabout to die"),
    ],
)
async def test_a_failure_is_told_and_another_target_is_another_try(
    exports: Exports, tmp_path: Path, script: str, code: ErrorCode, words: str
) -> None:
    error = (await result_of(exports, request(tmp_path, script))).error
    assert error is not None
    assert error.code is code
    assert words in error.message
    assert (await exports.ask(request(tmp_path, script))).result == ExportResult(error=error)
    assert not (tmp_path / "jobs/job_1/models/model_1").exists()
    assert (await result_of(exports, request(tmp_path, "writes", "model_2"))).model is not None


async def test_an_export_dies_with_its_service_and_is_made_anew_by_the_next(tmp_path: Path) -> None:
    first = await Exports.open(tmp_path / "exports", LAUNCHER)
    asked = request(tmp_path, "waits")
    await busy_with(first, asked)
    folder = next((tmp_path / "exports").iterdir())
    await first.stop()
    assert processes_of(folder) == []
    with pytest.raises(UnavailableError):
        await first.ask(asked)
    assert not (tmp_path / asked.target_uri).exists()
    second = await Exports.open(tmp_path / "exports", LAUNCHER)
    (tmp_path / "go on").touch()
    assert (await result_of(second, asked)).model is not None
    await second.stop()


def test_every_wrong_field_of_a_request_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        request(
            tmp_path,
            "writes",
            job_id="../job",
            spec_json='{"method": "sft"}',
            checkpoint_uri="../checkpoint",
            target_uri="/etc",
            form="gguf",
            dtype="int4",
        )
    fields = {violation.field for violation in caught.value.violations}
    assert {"job_id", "checkpoint_uri", "target_uri", "form", "dtype", "spec_json.base_model"} <= fields
    with pytest.raises(InvalidArgumentError, match="must lie below jobs/job_1/"):
        request(tmp_path, "writes", target_uri="jobs/job_2/models/model_1")
