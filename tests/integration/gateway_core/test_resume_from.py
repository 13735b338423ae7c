"""Jobs that start from another job's checkpoint: what is refused, what the trainer is handed, what stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gateway_room import Room, eventually, job_spec, run_of, shown, started_run
from scripted_trainer import ScriptedRun

from plaudit.errors import InvalidArgumentError, NotFoundError
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.jobs import InitCheckpoint, RunSpec


def put_checkpoint(room: Room, run: ScriptedRun, step: int, text: str = "weights") -> Path:
    """The files of a checkpoint, and the entry that tells of it."""
    folder = room.folder / "artifacts" / run.checkpoint_uri(step)
    (folder / "inner").mkdir(parents=True)
    (folder / "model.safetensors").write_text(text)
    (folder / "inner/state.json").write_text("{}")
    (folder / "manifest.json").write_text(f'{{"step": {step}}}')
    run.checkpoint(step)
    return folder


async def source_job(
    room: Room, steps: tuple[int, ...] = (10, 20), **changes: Any
) -> tuple[str, ScriptedRun]:
    """A job that has completed, with checkpoints of these steps."""
    job_id, run = await started_run(room, **changes)
    run.change(pb.RUN_STATE_RUNNING)
    run.step(max(steps), total=max(steps))
    for step in steps:
        put_checkpoint(room, run, step)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    return job_id, run


async def wrong(room: Room, **changes: Any) -> str:
    """The one thing that is wrong with resume_from."""
    assert room.gateway is not None
    with pytest.raises(InvalidArgumentError) as refused:
        await room.gateway.jobs.create(job_spec(**changes))
    (violation,) = refused.value.violations
    assert violation.field == "resume_from"
    return violation.message


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_the_newest_checkpoint_of_a_job_or_the_one_that_is_named(room: Room) -> None:
    await room.add_trainer(places=3)
    gateway = await room.open()
    source, run = await source_job(room)
    for asked, step in ((source, 20), (f"{source}@20", 20), (f"{source}@10", 10)):
        job = await gateway.jobs.create(job_spec(resume_from=asked))
        # What was asked for is settled when the job is made.
        assert job.spec.resume_from == f"{source}@{step}"
        started = await run_of(room, job.id)
        spec = RunSpec.model_validate_json(started.request.spec_json)
        uri = f"jobs/{job.id}/start-1/checkpoint-{step:06d}"
        assert spec.init_checkpoints == (InitCheckpoint(uri=uri),)
        assert started.request.checkpoint_uri == ""
        assert await shown(room, job.id, "latest_checkpoint_id") == ""
        original = room.folder / "artifacts" / run.checkpoint_uri(step)
        assert contents(room.folder / "artifacts" / uri) == contents(original)
        started.change(pb.RUN_STATE_COMPLETED)
        await room.wait_for_status(job.id, "completed")


async def test_a_job_that_names_no_rewards_goes_on_with_those_of_the_other(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    shape = {"rollouts_per_prompt": 4, "global_batch_size": 16, "max_prompt_length": 96}
    source, _ = await source_job(room, hyperparameters=shape)

    async def created(hyperparameters: dict[str, int], **changes: Any) -> tuple[int, int, int]:
        spec = job_spec(resume_from=source, hyperparameters=hyperparameters, **changes)
        job = await gateway.jobs.create(spec)
        assert [reward.reward for reward in job.spec.rewards] == ["exact_answer"]
        made = job.spec.hyperparameters.model_dump()
        return made["global_batch_size"], made["max_prompt_length"], made["rollouts_per_prompt"]

    assert await created({"rollouts_per_prompt": 4}, rewards=[]) == (16, 96, 4)
    assert await created({"global_batch_size": 32}, rewards=[]) == (32, 96, 8)
    # A job that says itself what it learns from is one of its own.
    assert await created({}) == (64, 1024, 8)


async def test_the_start_stays_when_the_other_job_removes_its_checkpoint(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    source, run = await source_job(room)
    job = await gateway.jobs.create(job_spec(resume_from=source))
    await gateway.jobs.pause(job.id)
    original = room.folder / "artifacts" / run.checkpoint_uri(20)
    before = contents(original)
    shutil.rmtree(original)
    await gateway.jobs.resume(job.id)
    started = await run_of(room, job.id)
    (init,) = RunSpec.model_validate_json(started.request.spec_json).init_checkpoints
    assert contents(room.folder / "artifacts" / init.uri) == before
    # A later attempt begins with the same start and goes on from the job's own checkpoint.
    started.change(pb.RUN_STATE_RUNNING)
    started.step(5)
    put_checkpoint(room, started, 5)
    await eventually("the checkpoint", lambda: shown(room, job.id, "latest_checkpoint_id"))
    started.fail("process_died")
    second = await run_of(room, job.id, attempt=2)
    assert RunSpec.model_validate_json(second.request.spec_json).init_checkpoints == (init,)
    assert second.request.checkpoint_uri == started.checkpoint_uri(5)


async def test_adapters_bring_along_what_they_were_trained_on(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    lora = {"lora_rank": 4}
    first, _ = await source_job(room, hyperparameters={**lora, "load_in_4bit": True})
    second, _ = await source_job(room, (7,), hyperparameters=lora, resume_from=first)
    job = await gateway.jobs.create(job_spec(resume_from=second))
    assert RunSpec.model_validate_json((await run_of(room, job.id)).request.spec_json).init_checkpoints == (
        InitCheckpoint(uri=f"jobs/{job.id}/start-1/checkpoint-000020", on_four_bits=True),
        InitCheckpoint(uri=f"jobs/{job.id}/start-2/checkpoint-000007"),
    )
    # All weights need nothing but themselves.
    (await run_of(room, job.id)).change(pb.RUN_STATE_COMPLETED)
    third, _ = await source_job(room, (3,), resume_from=second)
    last = await gateway.jobs.create(job_spec(resume_from=third))
    spec = RunSpec.model_validate_json((await run_of(room, last.id)).request.spec_json)
    assert [init.uri for init in spec.init_checkpoints] == [f"jobs/{last.id}/start-1/checkpoint-000003"]


async def test_what_cannot_be_started_from_is_refused_with_a_way_out(room: Room) -> None:
    await room.add_trainer(places=2)
    gateway = await room.open()
    source, run = await source_job(room)
    assert 'after @ stands the step of a checkpoint; for example "' in await wrong(
        room, resume_from=f"{source}@last"
    )
    assert "has no checkpoint of step 15; it has 10, 20: take one of these" in await wrong(
        room, resume_from=f"{source}@15"
    )
    message = await wrong(room, resume_from=source, base_model="other/model")
    assert 'belong to base_model "builtin:tiny", and this job asks for "other/model"' in message
    with pytest.raises(NotFoundError, match="resume_from: there is no job") as missing:
        await gateway.jobs.create(job_spec(resume_from="job_none@3"))
    assert missing.value.field == "resume_from"

    young, young_run = await started_run(room)
    assert "has no checkpoint that could be started from; wait for its first one" in await wrong(
        room, resume_from=young
    )
    await gateway.jobs.cancel(young)
    young_run.change(pb.RUN_STATE_CANCELLED)
    await room.wait_for_status(young, "cancelled")
    assert "it is cancelled, and comes to none by itself: name another job" in await wrong(
        room, resume_from=young
    )
    # The store does not know yet that it was removed, but the files are gone.
    shutil.rmtree(room.folder / "artifacts" / run.checkpoint_uri(20))
    assert "has no checkpoint of step 20; it has 10" in await wrong(room, resume_from=f"{source}@20")
    # Everything that is wrong is told at once.
    with pytest.raises(InvalidArgumentError) as refused:
        await gateway.jobs.create(job_spec(resume_from=f"{source}@15", output_name="no name"))
    assert {v.field for v in refused.value.violations} == {"resume_from", "output_name"}


async def test_nothing_is_left_of_a_job_that_is_not_made(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    source, _ = await source_job(room)
    jobs = room.folder / "artifacts/jobs"
    before = names_in(jobs)
    checked = await gateway.jobs.create(job_spec(resume_from=source), validate_only=True)
    assert checked.spec.resume_from == f"{source}@20"
    assert names_in(jobs) == before
    made = await gateway.jobs.create(job_spec(resume_from=source), request_id="once")
    assert await gateway.jobs.create(job_spec(resume_from=source), request_id="once") == made
    assert names_in(jobs) == {*before, made.id}


async def test_sft_takes_no_rewards_and_is_not_preflighted(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    async with gateway.datasets.upload() as upload:
        for n in range(8):
            turns = [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "yes"}]
            await upload.write(json.dumps({"messages": turns}).encode() + b"\n")
        dataset = await upload.store("chats")
    base = {"base_model": "builtin:tiny", "output_name": "chatter", "method": "sft", "dataset_id": dataset.id}
    with pytest.raises(InvalidArgumentError) as refused:
        await gateway.jobs.create(
            {**base, "rewards": job_spec()["rewards"], "hyperparameters": {"kl_coef": 1}}
        )
    assert {v.field: v.message.split(";")[0] for v in refused.value.violations} == {
        "rewards": '[{"name": "exact_answer", "server": "builtin", "reward": "exact_answer"}]: sft imitates '
        "the answers of the dataset and asks no rewards",
        "hyperparameters.kl_coef": "is a hyperparameter of grpo, and sft has none of this name",
        "hyperparameters.global_batch_size": '64 takes 64 examples a step, and dataset "chats" has 8',
    }
    job = await gateway.jobs.create({**base, "hyperparameters": {"global_batch_size": 8}})
    spec = RunSpec.model_validate_json((await run_of(room, job.id)).request.spec_json)
    assert (spec.method, spec.rewards, spec.preflight) == ("sft", (), "off")
    assert spec.hyperparameters.learning_rate == 1e-5
    assert (await gateway.jobs.get(job.id)).spec == job.spec
    with pytest.raises(InvalidArgumentError, match="cannot be trained on by sft"):
        await gateway.jobs.create({**base, "dataset_id": "builtin:additions"})
