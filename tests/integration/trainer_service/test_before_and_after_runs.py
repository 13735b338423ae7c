"""What a trainer says of a run before it starts, and what is left of one that dies at its end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer
from trainer_process import PATIENCE, RUN_PROGRAM, InnerTrainer, spec

from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.memory import MemoryEstimate
from trainer_service.launchers.local import LocalLauncher
from trainer_service.launchers.port import ProcessExit
from trainer_service.run_directory import RunDirectories, RunStart
from trainer_service.sizing.model_files import BUILTIN_TINY_FOLDER
from trainer_service.supervision import Run


def check_request(**changed: Any) -> pb.CheckRunRequest:
    hyperparameters = changed.pop("hyperparameters", {})
    return pb.CheckRunRequest(
        **{
            "base_model": "builtin:tiny",
            "method": "grpo",
            "hyperparameters_json": json.dumps(hyperparameters),
            **changed,
        }
    )


def written_dataset(trainer: InnerTrainer, prompts: list[Any]) -> str:
    folder = trainer.data_dir / "artifacts" / "datasets"
    folder.mkdir(parents=True)
    columns = {"prompt": [json.dumps(p) for p in prompts], "columns": ["{}"] * len(prompts)}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return "datasets/rows.parquet"


async def test_a_run_is_judged_before_it_starts(trainer: InnerTrainer, tmp_path: Path) -> None:
    written_dataset(trainer, ["short", "x" * 600])
    checked = await trainer.stub.CheckRun(check_request(dataset_uri="datasets/rows.parquet"))
    estimate = MemoryEstimate.model_validate_json(checked.estimate_json)
    assert estimate.held_bytes == 20 * 628_864
    assert estimate.longest_row == 2048 + 602 // 3 + 32
    assert estimate.fits and not checked.obstacles
    unknown = await trainer.stub.CheckRun(check_request(base_model="somebody/something"))
    assert unknown.estimate_json == ""
    assert "somebody/something is not on the trainer's machine yet" in unknown.unknown_reason

    # A model of the size of the largest there are: its headers alone.
    folder = tmp_path / "huge"
    folder.mkdir()
    config = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "vocab_size": 128_000}
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"model.layers.0.mlp.up_proj.weight": {"shape": [10**6, 10**6]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    refused = await trainer.stub.CheckRun(check_request(base_model=str(folder)))
    assert [o.field for o in refused.obstacles] == ["base_model"]
    assert "weights 4 TB" in refused.obstacles[0].message
    for no_model in ("../../etc", str(tmp_path)):
        broken = await trainer.stub.CheckRun(check_request(base_model=no_model))
        assert [o.field for o in broken.obstacles] == ["base_model"]
    for wrong, field in (
        (check_request(method="dpo"), "method"),
        (check_request(base_model=""), "base_model"),
        (check_request(dataset_uri="../secret"), "dataset_uri"),
        (check_request(hyperparameters={"seed": "x"}), "hyperparameters_json.seed"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await trainer.stub.CheckRun(wrong)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert field in str(caught.value.details())


async def count(trainer: InnerTrainer, request: pb.CountTokensRequest) -> pb.CountTokensResponse:
    async with asyncio.timeout(2 * PATIENCE):
        while (answer := await trainer.stub.CountTokens(request)).WhichOneof("result") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return answer


async def test_prompts_are_counted_as_the_model_reads_them(trainer: InnerTrainer) -> None:
    prompts = [
        "12+34=",
        "1+1=",
        "7" * 40,
        [{"role": "system", "content": "s" * 60}, {"role": "user", "content": "1"}],
    ]
    uri = written_dataset(trainer, prompts)
    path = trainer.data_dir / "artifacts" / uri
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    by_digest = f"datasets/{digest}.parquet"
    shutil.copyfile(path, path.with_name(f"{digest}.parquet"))
    request = pb.CountTokensRequest(
        base_model="builtin:tiny", dataset_uri=uri, dataset_sha256=digest, row_count=4, max_prompt_length=50
    )
    assert (await trainer.stub.CountTokens(request)).WhichOneof("result") is None
    other = pb.CountTokensRequest()
    other.CopyFrom(request)
    other.max_prompt_length = 51
    with pytest.raises(grpc.aio.AioRpcError) as busy:
        await trainer.stub.CountTokens(other)
    assert busy.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    told = (await count(trainer, request)).statistics

    lengths = rendered_lengths(prompts)
    assert [told.min, told.max, told.count] == [min(lengths), max(lengths), 4]
    assert told.median == statistics.median(lengths)
    assert told.p95 == max(lengths)
    assert (told.above_limit_count, told.too_long_count, told.first_too_long_row) == (
        sum(n > 50 for n in lengths),
        1,
        3,
    )
    assert told.model_revision.startswith("files-")
    # What is known is used where a run is judged; of another limit nothing is.
    checked = await trainer.stub.CheckRun(
        check_request(dataset_uri=by_digest, hyperparameters={"max_prompt_length": 50})
    )
    assert [o.field for o in checked.obstacles] == ["hyperparameters.max_prompt_length"]
    assert checked.obstacles[0].message.startswith("50 leaves no room for the prompt of row 4: ")
    assert f"; {max(lengths)}, the longest prompt, would work" in checked.obstacles[0].message
    unknown = await trainer.stub.CheckRun(
        check_request(dataset_uri=by_digest, hyperparameters={"max_prompt_length": 49})
    )
    assert not unknown.obstacles
    # Held-out prompts are told as such: where evaluations take rows 1 and 3 alone, the fourth hurts nobody.
    for most, fields in ((4, ["hyperparameters.eval_dataset_id"]), (2, [])):
        held_out = {"max_prompt_length": 50, "eval_dataset_id": "exams", "eval_max_prompts": most}
        checked = await trainer.stub.CheckRun(
            check_request(eval_dataset_uri=by_digest, hyperparameters=held_out)
        )
        assert [o.field for o in checked.obstacles] == fields
        assert all('the prompt of row 4 of "exams" does not fit' in o.message for o in checked.obstacles)
    # It is kept, also by the next service, which has nobody to ask.
    await trainer.stop()
    path.unlink()
    await trainer.start()
    assert (await trainer.stub.CountTokens(request)).statistics == told


def rendered_lengths(prompts: list[Any]) -> list[int]:
    """Counted by the tokenizers library alone, in the form that the model's template has."""
    tokenizer = Tokenizer.from_file(str(BUILTIN_TINY_FOLDER / "tokenizer.json"))
    lengths = []
    for prompt in prompts:
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        text = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in turns)
        lengths.append(len(tokenizer.encode(f"{text}<|im_start|>assistant\n").ids))
    return lengths


async def test_a_death_after_the_last_checkpoint_loses_the_model_and_not_the_training(
    trainer: InnerTrainer,
) -> None:
    await trainer.start_run(steps=3, end="kill", saves=True)
    run = await trainer.until(lambda run: run.state == pb.RUN_STATE_COMPLETED)
    assert not run.HasField("error")
    *_, told, end = await trainer.events()
    assert end.state_changed.state == pb.RUN_STATE_COMPLETED
    assert told.model_exported.step == 3
    assert told.model_exported.error.code == "process_died"
    assert "Every step is done" in told.model_exported.error.message


async def test_a_death_before_it_fails_the_run(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=3, end="kill", saves=True, end_at_step=2)
    run = await trainer.until(lambda run: run.state == pb.RUN_STATE_FAILED)
    assert run.error.code == "process_died"


async def test_memory_that_ran_out_in_the_export_is_told_with_the_way_out(
    trainer: InnerTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Run._end

    async def end_for_want_of_memory(run: Run, ended: ProcessExit) -> None:
        # What the launcher says where the kernel counts a kill in this control group.
        await end(run, ProcessExit(status=ended.status, out_of_memory=True, output=ended.output))

    monkeypatch.setattr(Run, "_end", end_for_want_of_memory)
    await trainer.start_run(steps=2, end="kill", saves=True)
    await trainer.until(lambda run: run.state == pb.RUN_STATE_COMPLETED)
    told = (await trainer.events())[-2].model_exported
    assert told.error.code == "out_of_memory"
    assert "export it again" in told.error.message and "plaudit model export" in told.error.message


async def test_runs_with_unsloth_are_started_by_its_interpreter(tmp_path: Path) -> None:
    """The launcher alone: a service refuses such runs without a GPU."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/starts\nexec {sys.executable} "$@"\n')
    stand_in.chmod(0o755)
    launcher = LocalLauncher((sys.executable, str(RUN_PROGRAM)), unsloth_interpreter=stand_in)
    directories = RunDirectories(tmp_path / "runs")
    for number, use_unsloth in enumerate([False, True]):
        asked = {**spec(steps=1), "hyperparameters": {"use_unsloth": use_unsloth}}
        start = RunStart.model_validate(
            {"run_id": f"run_{number}", "job_id": "j", "attempt": 1, "spec": asked, "artifact_root": tmp_path}
        )
        process = await launcher.launch(directories.create(start))
        assert (await asyncio.wait_for(process.wait(), PATIENCE)).status == 0
    (started,) = (tmp_path / "starts").read_text().splitlines()
    assert started.startswith(f"{RUN_PROGRAM} --run-dir {tmp_path}/runs/run_1 ")
