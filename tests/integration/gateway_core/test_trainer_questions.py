"""What trainers say of a job before it is queued, and of a dataset's prompts."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_room import Room, eventually, job_spec, shown, started_run

from gateway.datasets.token_statistics import PromptTokens
from gateway.events import LogLine
from gateway.jobs.trainer_questions import TrainerQuestions
from plaudit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.memory import MemoryEstimate


def estimate(**changed: Any) -> MemoryEstimate:
    parts = {
        "weights_bytes": 4,
        "gradients_bytes": 4,
        "optimizer_bytes": 8,
        "reference_bytes": 4,
        "activations_bytes": 5,
        "logits_bytes": 1,
        "rollout_bytes": 7,
    }
    values = {"device": "cpu", "available_bytes": 100, "micro_batch_size": 2, "longest_row": 9, **parts}
    return MemoryEstimate(**{**values, **changed})


OBSTACLE = pb.Obstacle(field="hyperparameters.lora_rank", message="memory does not suffice; 16 would fit")


async def messages_of(room: Room, job_id: str) -> list[str]:
    assert room.gateway is not None
    page = await room.gateway.events.page(job_id)
    return [event.payload.message for event in page.items if isinstance(event.payload, LogLine)]


async def test_a_job_tells_what_it_takes(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    trainer.check = pb.CheckRunResponse(
        estimate_json=estimate().model_dump_json(), warnings=["long rollouts"]
    )
    dry = await gateway.jobs.create(job_spec(), validate_only=True)
    assert dry.memory == estimate() and dry.memory.needed_bytes == 20 + 7
    asked = trainer.checks[-1]
    dataset = await gateway.datasets.get("builtin:additions")
    assert (asked.base_model, asked.method, asked.dataset_uri) == ("builtin:tiny", "grpo", dataset.uri)
    assert '"rollouts_per_prompt":8' in asked.hyperparameters_json
    job_id, run = await started_run(room)
    assert (await gateway.jobs.get(job_id)).memory == estimate()
    told = await messages_of(room, job_id)
    assert "long rollouts" in told
    assert any(message.startswith("memory: up to 27 B of the 100 B of cpu: weights 4 B") for message in told)

    # What the run finds when it has loaded its model takes its place.
    loaded = estimate(activations_bytes=50)
    run.write(memory_estimated=pb.MemoryEstimated(estimate_json=loaded.model_dump_json()))

    async def known() -> bool:
        return bool(await shown(room, job_id, "memory") == loaded)

    await eventually("the run's own estimate", known)


async def test_a_job_that_no_trainer_can_take_is_refused(room: Room) -> None:
    small, large = await room.add_trainer(), await room.add_trainer()
    gateway = await room.open()
    small.check = pb.CheckRunResponse(estimate_json=estimate().model_dump_json(), obstacles=[OBSTACLE])
    large.check = pb.CheckRunResponse(estimate_json=estimate(available_bytes=500).model_dump_json())
    job = await gateway.jobs.create(job_spec())
    assert job.memory == estimate(available_bytes=500)
    told = await messages_of(room, job.id)
    assert any(f"would fail on trainer {small.address}: hyperparameters.lora_rank" in line for line in told)

    large.check = pb.CheckRunResponse(
        estimate_json=estimate(available_bytes=500).model_dump_json(),
        obstacles=[pb.Obstacle(field="hyperparameters.micro_batch_size", message="4 would fit")],
    )
    with pytest.raises(InvalidArgumentError) as refused:
        await gateway.jobs.create(job_spec(), validate_only=True)
    # As the trainer with the most memory puts it.
    assert [(v.field, v.message) for v in refused.value.violations] == [
        ("hyperparameters.micro_batch_size", "4 would fit")
    ]
    large.check = pb.CheckRunResponse(unknown_reason="x/y is not there yet", warnings=["it is slow"])
    small.check = large.check
    dry = await gateway.jobs.create(job_spec(), validate_only=True)
    assert dry.status_detail == (
        "it is slow; memory: not known before the run has loaded its model (x/y is not there yet)"
    )
    # One that does not know the question stands in nobody's way.
    small.check = large.check = None
    dry = await gateway.jobs.create(job_spec(), validate_only=True)
    assert dry.status_detail == (
        f"memory: not known before the run has loaded its model (trainer {small.address} does not reckon; "
        f"trainer {large.address} does not reckon)"
    )
    small.check = pb.CheckRunResponse(obstacles=[OBSTACLE])
    # One that is away may be able to.
    await large.stop()
    await gateway.jobs.create(job_spec())


async def test_what_trainers_say_is_told_with_all_the_rest(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    broken = pb.Obstacle(field="base_model", message="it holds no config.json")
    trainer.check = pb.CheckRunResponse(obstacles=[OBSTACLE, broken])

    async def wrong(**changed: Any) -> set[str]:
        with pytest.raises((InvalidArgumentError, NotFoundError)) as refused:
            await gateway.jobs.create({**job_spec(), **changed})
        error = refused.value
        return {v.field for v in error.violations} if isinstance(error, InvalidArgumentError) else {"-"}

    obstacles = {OBSTACLE.field, broken.field}
    assert await wrong() == obstacles
    assert await wrong(output_name="no name", rewards=[]) == {"output_name", "rewards", *obstacles}
    assert await wrong(dataset_id="nowhere") == {"dataset_id", *obstacles}
    assert trainer.checks[-1].dataset_uri == ""
    # With other hyperparameters it may need less; its model is the same.
    given = {"max_steps": 2, "global_batch_size": 16, "kl_coef": -1}
    assert await wrong(hyperparameters=given) == {"hyperparameters.kl_coef", broken.field}
    assert '"kl_coef":0.001' in trainer.checks[-1].hyperparameters_json
    evaluated = {"max_steps": 2, "global_batch_size": 16, "eval_dataset_id": "builtin:additions"}
    assert await wrong(hyperparameters=evaluated) == obstacles
    asked = trainer.checks[-1]
    assert asked.eval_dataset_uri == asked.dataset_uri != ""
    asked_before = len(trainer.checks)
    assert await wrong(base_model="") == {"base_model"}
    assert len(trainer.checks) == asked_before


async def test_without_a_trainer_it_is_not_known(room: Room) -> None:
    trainer = await room.add_trainer()
    await trainer.stop()
    gateway = await room.open()
    job = await gateway.jobs.create(job_spec())
    assert job.memory is None
    (told,) = await messages_of(room, job.id)
    assert told.startswith("memory: not known before the run has loaded its model (trainer 127.0.0.1:")


async def test_tokens_of_a_dataset(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    questions = TrainerQuestions([trainer.address])
    async with questions.at_work():
        tokens = PromptTokens(gateway.datasets, questions, patience_seconds=0.3)
        with pytest.raises(UnavailableError) as slow:
            await tokens.statistics("builtin:additions", "builtin:tiny")
        assert (slow.value.reason, slow.value.retry_after) == ("TOKENS_BEING_COUNTED", 1.0)
        asked = trainer.counts[-1]
        dataset = await gateway.datasets.get("builtin:additions")
        assert (asked.dataset_sha256, asked.row_count) == (dataset.sha256, dataset.row_count)
        assert asked.max_prompt_length == 1024

        told = pb.TokenStatistics(count=3, min=1, median=1.5, p95=4, max=4, max_prompt_length=2)
        trainer.count = lambda: pb.CountTokensResponse(statistics=told)
        found = await tokens.statistics("builtin:additions", "builtin:tiny", max_prompt_length=2)
        assert (found.count, found.median, found.first_too_long_row) == (3, 1.5, None)
        trainer.count = lambda: pb.CountTokensResponse(
            error=pb.RunError(code="model_error", message="no such")
        )
        with pytest.raises(FailedPreconditionError, match="no such"):
            await tokens.statistics("builtin:additions", "x")
        with pytest.raises(NotFoundError):
            await tokens.statistics("nothing", "builtin:tiny")
        with pytest.raises(InvalidArgumentError, match="model"):
            await tokens.statistics("builtin:additions", "")
        await trainer.stop()
        with pytest.raises(UnavailableError) as away:
            await tokens.statistics("builtin:additions", "builtin:tiny")
        assert away.value.reason == "NO_TRAINER"
