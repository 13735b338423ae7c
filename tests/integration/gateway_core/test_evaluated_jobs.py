"""A job with an eval_dataset_id: what its trainer is handed, and what becomes of what it reports."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gateway_room import Room, eventually, job_spec, run_of, shown

from plaudit.errors import FailedPreconditionError, InvalidArgumentError
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.jobs import RunSpec


async def upload(room: Room, name: str) -> str:
    assert room.gateway is not None
    async with room.gateway.datasets.upload() as incoming:
        await incoming.write(b'{"prompt": "2 + 2", "answer": 4}\n{"prompt": "1 + 2", "answer": 3}\n')
        return (await incoming.store(name, "jsonl")).id


def write_completion(root: Path, uri: str, text: str) -> None:
    row = {
        "step": 2, "attempt": 1, "group_id": "g", "completion_id": "c", "prompt_text": "2 + 2",
        "completion_text": text, "token_count": 1, "truncated": False, "reward": 1.0, "advantage": None,
        "outcomes": json.dumps([]),
    }  # fmt: skip
    (root / uri).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row]), root / uri)


async def test_evaluations_from_the_request_to_the_series(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    dataset_id = await upload(room, "held-out")
    job = await gateway.jobs.create(
        job_spec(hyperparameters={"eval_dataset_id": "held-out", "eval_every": 2, "eval_max_prompts": 2})
    )
    run = await run_of(room, job.id)
    spec = RunSpec.model_validate_json(run.request.spec_json)
    held_out = await gateway.datasets.get(dataset_id)
    assert spec.eval_dataset is not None
    assert (spec.eval_dataset.uri, spec.eval_dataset.sha256) == (held_out.uri, held_out.sha256)
    assert spec.eval_dataset.row_count == 2
    assert spec.dataset.uri != spec.eval_dataset.uri
    # It is needed as long as the job is not over.
    with pytest.raises(FailedPreconditionError, match=job.id):
        await gateway.datasets.delete("held-out")

    root = room.folder / "artifacts"
    learnt, evaluated = (
        f"jobs/{job.id}/attempt-1/{kind}/step-000002.parquet" for kind in ("completions", "evaluations")
    )
    write_completion(root, learnt, "four")
    write_completion(root, evaluated, "five")
    run.change(pb.RUN_STATE_RUNNING)
    run.write(evaluation_finished=pb.EvaluationFinished(step=0, metrics={"eval/reward_mean": 0.25}))
    run.steps(1, 2)
    run.write(completions_written=pb.CompletionsWritten(step=2, uri=learnt, row_count=1, sha256="ab"))
    run.write(
        evaluation_finished=pb.EvaluationFinished(
            step=2,
            metrics={"eval/reward_mean": 0.75, "eval/reward/exact_answer/canary_pass_fraction": 0.6},
            completions=pb.CompletionsWritten(step=2, uri=evaluated, row_count=1, sha256="ab"),
        )
    )
    await eventually("the evaluation", lambda: shown(room, job.id, "alerts"))
    (alert,) = await shown(room, job.id, "alerts")
    assert (alert.kind, alert.severity, alert.step) == ("reward_fooled", "critical", 2)
    assert (await shown(room, job.id, "metrics"))["eval/reward_mean"] == 0.75
    series = await gateway.jobs.metrics(job.id)
    assert [(row.step, row.values.get("eval/reward_mean")) for row in series.rows] == [
        (0, 0.25),
        (1, None),
        (2, 0.75),
    ]
    assert series.rows[2].values["reward_mean"] == 0.02
    for evaluations, text in ((False, "four"), (True, "five")):
        page = await gateway.jobs.completions(job.id, evaluations=evaluations)
        assert [(c.step, c.completion_text) for c in page.items] == [(2, text)]

    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job.id, "completed")
    await gateway.datasets.delete("held-out")


async def test_an_alert_on_an_evaluation_stops_the_job(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    h = {"eval_dataset_id": "builtin:additions", "stop_on": ["reward_fooled"]}
    job = await gateway.jobs.create(job_spec(hyperparameters=h))
    run = await run_of(room, job.id)
    run.on_pause = lambda: run.change(pb.RUN_STATE_PAUSED, "asked to pause")
    run.change(pb.RUN_STATE_RUNNING)
    passing = {"eval/reward/exact_answer/canary_pass_fraction": 1.0}
    run.write(evaluation_finished=pb.EvaluationFinished(step=0, metrics=passing))
    await room.wait_for_status(job.id, "paused")
    assert "stopped on reward_fooled at step 0" in await shown(room, job.id, "status_detail")


async def test_what_evaluations_can_not_use_is_refused(room: Room) -> None:
    gateway = await room.open()
    with pytest.raises(InvalidArgumentError) as refused:
        await gateway.jobs.create(
            job_spec(output_name="a b", hyperparameters={"eval_dataset_id": "nowhere", "eval_every": 2.5})
        )
    assert {v.field for v in refused.value.violations} == {
        "output_name",
        "hyperparameters.eval_every",
        "hyperparameters.eval_dataset_id",
    }
