"""Exports that are asked for: what the gateway asks trainers, keeps, tells, and refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_room import Room, eventually, job_spec, run_of
from model_files import WHOLE, add_checkpoint, add_job
from scripted_trainer import ScriptedTrainer

from gateway.events import Alert
from gateway.models.model import Model, ModelKind, ModelStatus
from gateway.store import Store
from plaudit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from plaudit.trainer.v1 import trainer_service_pb2 as pb

DONE = pb.ModelFile(path="model.safetensors", size_bytes=7, sha256="ab")


class ExportingTrainer(ScriptedTrainer):
    """Answers ExportCheckpoint as the test tells it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[pb.ExportCheckpointRequest] = []
        self.answer: pb.ExportCheckpointResponse | Exception = pb.ExportCheckpointResponse(
            status_detail="exporting the model"
        )

    async def ExportCheckpoint(
        self, request: pb.ExportCheckpointRequest, context: Any
    ) -> pb.ExportCheckpointResponse:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def finish(self, kind: str = "merged") -> None:
        uri = self.asked[-1].target_uri
        self.answer = pb.ExportCheckpointResponse(
            model=pb.ExportedModel(uri=uri, kind=kind, dtype=self.asked[-1].dtype, files=[DONE])
        )


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    monkeypatch.setenv("PLAUDIT_CONFIG", "/dev/null")
    room = Room(tmp_path)
    try:
        yield room
    finally:
        await room.close()
        for trainer in room.trainers:
            await trainer.stop()


@pytest.fixture
async def trainer(room: Room) -> ExportingTrainer:
    trainer = ExportingTrainer()
    await trainer.start()
    room.trainers.append(trainer)
    return trainer


async def stored_job(room: Room, content: dict[str, bytes] | None = None, **spec: Any) -> str:
    """A job with checkpoints after steps 20 and 40, in the store of a gateway that is not open."""
    folder = room.settings().state_dir
    folder.mkdir(parents=True, exist_ok=True)
    async with Store.open(folder / "gateway.sqlite3") as store:
        job = await add_job(store, **spec)
        for step in (20, 40):
            arguments = () if content is None else (content,)
            await add_checkpoint(store, room.settings().artifacts, job, step, *arguments)
    return job.job.id


async def reached(room: Room, model_id: str, status: ModelStatus) -> Model:
    async def there() -> Model | None:
        assert room.gateway is not None
        model = await room.gateway.models.get(model_id)
        return model if model.status is status else None

    return await eventually(f"{model_id} to be {status}", there)


async def test_an_export_is_asked_for_once_and_kept_when_it_is_done(
    room: Room, trainer: ExportingTrainer
) -> None:
    job_id = await stored_job(room)
    models = (await room.open()).models
    begun = await models.export(f"{job_id}@20", dtype="bfloat16")
    assert (begun.status, begun.step, begun.kind) == (ModelStatus.EXPORTING, 20, ModelKind.MERGED)
    assert begun.status_detail == "exporting the model"
    request = trainer.asked[0]
    assert request.job_id == job_id
    assert json.loads(request.spec_json) == {"frozen": True}
    assert request.checkpoint_uri == f"jobs/{job_id}/attempt-1/checkpoint-000020"
    assert request.target_uri == f"jobs/{job_id}/models/{begun.id}"
    assert (request.form, request.dtype) == ("merged", "bfloat16")
    # The same again is the same; another form is another.
    assert (await models.export(f"{job_id}@20", dtype="bfloat16")).id == begun.id
    for refused in (models.read_file(begun.id, "model.safetensors", 0), models.delete(begun.id)):
        with pytest.raises(FailedPreconditionError, match="is being exported"):
            await refused
    trainer.finish()
    done = await reached(room, begun.id, ModelStatus.AVAILABLE)
    assert [(f.path, f.size_bytes, f.sha256) for f in done.files] == [("model.safetensors", 7, "ab")]
    assert {r.target_uri for r in trainer.asked} == {request.target_uri}
    assert (await models.export(f"{job_id}@20", dtype="bfloat16")).id == begun.id


async def test_a_gateway_that_comes_back_goes_on_and_a_trainer_that_comes_back_is_asked_again(
    room: Room, trainer: ExportingTrainer
) -> None:
    job_id = await stored_job(room)
    begun = await (await room.open()).models.export(job_id, form="adapter")
    assert (begun.step, begun.kind) == (40, ModelKind.ADAPTER)
    await room.close()
    await room.open()
    await trainer.stop()

    async def silence_is_told() -> bool:
        assert room.gateway is not None
        return "no trainer can export it" in (await room.gateway.models.get(begun.id)).status_detail

    await eventually("the silence to be told", silence_is_told)
    before = len(trainer.asked)
    await trainer.start()
    await eventually("another question", lambda: len(trainer.asked) > before)
    trainer.finish("adapter")
    assert (await reached(room, begun.id, ModelStatus.AVAILABLE)).kind is ModelKind.ADAPTER
    assert len({r.target_uri for r in trainer.asked}) == 1


async def test_a_failed_export_says_why_and_may_be_tried_again(room: Room, trainer: ExportingTrainer) -> None:
    job_id = await stored_job(room)
    models = (await room.open()).models
    trainer.answer = pb.ExportCheckpointResponse(
        error=pb.RunError(code="model_error", message="bfloat16 weights round away what was learnt")
    )
    failed = await models.export(job_id, dtype="bfloat16")
    assert (failed.status, failed.status_detail) == (
        ModelStatus.UNAVAILABLE,
        "bfloat16 weights round away what was learnt",
    )
    with pytest.raises(FailedPreconditionError, match="round away") as caught:
        await models.read_file(failed.id, "model.safetensors", 0)
    assert caught.value.reason == "MODEL_UNAVAILABLE"
    again = await models.export(job_id, dtype="bfloat16")
    assert again.id != failed.id
    # While another one is made, it waits.
    trainer.answer = ResourceExhaustedError("one at a time", reason="EXPORT_BUSY", retry_after=0.1)
    waiting = await models.export(job_id)
    assert "waits for another export" in waiting.status_detail
    trainer.answer = pb.ExportCheckpointResponse(status_detail="exporting the model")
    await eventually("its turn", lambda: trainer.asked[-1].target_uri == waiting.uri)
    trainer.finish()
    await reached(room, waiting.id, ModelStatus.AVAILABLE)


async def test_without_a_trainer_nothing_is_begun(room: Room, trainer: ExportingTrainer) -> None:
    trainer.answer = UnimplementedError("an older trainer")
    job_id = await stored_job(room)
    models = (await room.open()).models
    for stopped in (False, True):
        if stopped:
            await room.trainers[0].stop()
        with pytest.raises(UnavailableError, match="start one that reaches the artifact root") as caught:
            await models.export(job_id)
        assert caught.value.reason == "NO_TRAINER"
        assert room.trainers[0].address in caught.value.message
    assert (await models.list()).items == []


async def test_what_cannot_be_exported_is_refused(room: Room, trainer: ExportingTrainer) -> None:
    full = await stored_job(room, WHOLE, hyperparameters={})
    models = (await room.open()).models
    with pytest.raises(FailedPreconditionError, match=r"no adapters; ask for its weights") as caught:
        await models.export(full, form="adapter")
    assert caught.value.reason == "NO_ADAPTERS"
    assert (await models.export(full)).kind is ModelKind.FULL
    with pytest.raises(NotFoundError, match="there is @40, @20"):
        await models.export(f"{full}@30")
    with pytest.raises(NotFoundError):
        await models.export("job_nope@30")
    with pytest.raises(InvalidArgumentError) as wrong:
        await models.export("@", form="gguf", dtype="int4")
    assert [v.field for v in wrong.value.violations] == ["checkpoint", "form", "dtype"]
    # The same export may be asked for again until it is done; nothing else was.
    assert len({asked.target_uri for asked in trainer.asked}) == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_run_exports_is_the_jobs_model(
    room: Room, trainer: ExportingTrainer, fails: bool
) -> None:
    gateway = await room.open()
    job = await gateway.jobs.create(job_spec(hyperparameters={"lora_rank": 4, "learning_rate": 1e-4}))
    run = await run_of(room, job.id)
    run.change(pb.RUN_STATE_RUNNING)
    run.step(100)
    run.checkpoint(100)
    error = pb.RunError(code="model_error", message="the trained policy writes exactly what its base writes")
    exported = pb.ExportedModel(
        uri=f"jobs/{job.id}/attempt-1/model", kind="merged", dtype="float32", files=[DONE]
    )
    told = pb.ModelExported(step=100, error=error) if fails else pb.ModelExported(step=100, model=exported)
    run.write(model_exported=told)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job.id, "completed")
    alerts = [e.payload for e in await room.events(job.id) if isinstance(e.payload, Alert)]
    model = (await gateway.models.list(job_id=job.id)).items[0]
    assert (model.is_final, model.step, model.attempt, model.kind) == (True, 100, 1, ModelKind.MERGED)
    if fails:
        assert [(a.kind, a.severity, a.step) for a in alerts] == [("export_failed", "warning", 100)]
        assert "writes exactly what its base writes" in alerts[0].message
        assert (model.status, model.files) == (ModelStatus.UNAVAILABLE, ())
        with pytest.raises(FailedPreconditionError, match="exactly what its base") as caught:
            await gateway.models.of_job(job.id)
        assert caught.value.reason == "MODEL_UNAVAILABLE"
        assert (await gateway.jobs.get(job.id)).model_id == ""
    else:
        assert alerts == []
        assert (await gateway.models.of_job(job.id)).id == model.id
        assert (await gateway.jobs.get(job.id)).model_id == model.id
    # A gateway that comes back still has it.
    await room.close()
    assert await (await room.open()).models.get("adder") == model
