"""Models and checkpoints on disk and in a store, as trainers leave them."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.jobs.job import Job
from gateway.jobs.journal import ExportedModel, ModelExported
from gateway.models.model import Model, ModelFile, ModelKind
from gateway.models.records import final_model
from gateway.store import Store
from gateway.store.checkpoints import CheckpointRecord
from gateway.store.ids import new_id
from gateway.store.jobs import JobRecord
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import parse_job_spec

WEIGHTS = bytes(range(256)) * 20
ADAPTER = {
    "adapter_config.json": b'{"r": 8}',
    "adapter_model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "optimizer.pt": b"o" * 5000,
    "scheduler.pt": b"s",
    "rng_state.pth": b"r",
    "trainer_state.json": b"{}",
}
WHOLE = {
    "config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "README.md": b"<script>alert(1)</script>",
}


def write_files(folder: Path, content: dict[str, bytes], **facts: Any) -> list[ModelFile]:
    """The files and their manifest; the files without it."""
    folder.mkdir(parents=True)
    files = []
    for name, data in content.items():
        (folder / name).write_bytes(data)
        files.append(ModelFile(name, len(data), hashlib.sha256(data).hexdigest()))
    listed = {file.path: {"sha256": file.sha256, "size_bytes": file.size_bytes} for file in files}
    (folder / "manifest.json").write_text(json.dumps({**facts, "files": listed}))
    return files


async def add_job(store: Store, status: JobStatus = JobStatus.COMPLETED, **spec: Any) -> JobRecord:
    """A job with one attempt."""
    time = datetime.now(UTC)
    parsed = parse_job_spec(
        {
            "base_model": "builtin:tiny",
            "dataset_id": "builtin:additions",
            "output_name": "adder",
            "hyperparameters": {"lora_rank": 8, "learning_rate": 1e-4},
            "rewards": [{"server": "builtin", "reward": "exact_answer"}],
            **spec,
        }
    )
    job = Job(new_id("job"), parsed, status, time, time, attempt=1)
    async with store.transaction() as session:
        record = await session.jobs.insert(job, dataset_id="ds_1", reward_server_ids=["rs_1"])
        await session.runs.insert(
            new_id("run"),
            job_key=record.key,
            attempt=1,
            trainer_id="trainer_1",
            from_step=0,
            checkpoint_uri="",
            spec_json='{"frozen": true}',
            created_at=time,
        )
    return record


async def add_checkpoint(
    store: Store, root: Path, record: JobRecord, step: int, content: dict[str, bytes] = ADAPTER
) -> str:
    """A checkpoint; its address."""
    uri = f"jobs/{record.job.id}/attempt-1/checkpoint-{step:06d}"
    write_files(root / uri, content, step=step, prompts_consumed=step)
    manifest = (root / uri / "manifest.json").read_bytes()
    size = sum(path.stat().st_size for path in (root / uri).iterdir())
    async with store.transaction() as session:
        await session.checkpoints.insert(
            record.key,
            CheckpointRecord(1, step, uri, size, hashlib.sha256(manifest).hexdigest(), datetime.now(UTC)),
        )
    return uri


async def add_model(store: Store, root: Path, record: JobRecord, step: int = 40) -> Model:
    """The model that the run of a job has exported."""
    uri = f"jobs/{record.job.id}/attempt-1/model"
    files = write_files(root / uri, WHOLE, kind="merged", dtype="float32", step=step)
    told = ModelExported(step, ExportedModel(uri, ModelKind.MERGED, "float32", tuple(files)), None)
    model = final_model(record, 1, told, datetime.now(UTC))
    async with store.transaction() as session:
        await session.models.insert(record.key, model)
    return model
