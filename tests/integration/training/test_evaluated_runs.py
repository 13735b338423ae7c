"""A run that is evaluated, by rewards of a real server, one of them held out."""

import re
from statistics import fmean

import pyarrow.parquet as pq
import pytest
from run_harness import RunHere, additions, binding, make_start, write_dataset

from plaudit.types.statuses import RunState
from trainer_service.journal import CompletionsWritten, EvaluationFinished, StepCompleted
from trainer_service.training.canaries import TEXTS


def test_a_run_is_evaluated_on_prompts_that_it_is_not_trained_on(tmp_path, odd_server, dataset):
    held_out = write_dataset(tmp_path / "artifacts", additions(48)[40:])
    start = make_start(
        tmp_path,
        [(binding("sum_is_right"), odd_server), (binding("brevity", 0.0), odd_server)],
        dataset=dataset,
        eval_dataset=held_out,
        max_steps=2,
        eval_every=1.0,
        eval_max_prompts=6,
    )
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED

    evaluations = run.entries(EvaluationFinished)
    assert [entry.step for entry in evaluations] == [0, 1, 2]
    assert any("evaluating after step 0" in detail for detail in run.details)
    prompts = [rows[0]["content"] for rows, _ in (additions(48)[40 + i * 8 // 6] for i in range(6))]
    for entry in evaluations:
        uri = f"jobs/job/attempt-1/evaluations/step-{entry.step:06d}.parquet"
        assert (entry.completions.uri, entry.completions.row_count) == (uri, 6)
        rows = pq.read_table(tmp_path / "artifacts" / uri).to_pylist()
        for prompt, row in zip(prompts, rows, strict=True):
            assert prompt in row["prompt_text"]
            numbers = re.findall(r"\d+", row["completion_text"])
            left, right = map(int, re.findall(r"\d+", prompt))
            # The weighted sum is that of the taught reward alone.
            assert row["reward"] == float(bool(numbers) and int(numbers[-1]) == left + right)
        brevities = [1.0 / (1 + len(row["completion_text"])) for row in rows]
        assert entry.metrics["eval/reward_mean"] == fmean(row["reward"] for row in rows)
        assert entry.metrics["eval/reward/brevity/mean"] == pytest.approx(fmean(brevities))
        assert entry.metrics["eval/reward/sum_is_right/failed_fraction"] == 0.0
        # The server promises no range: what is shorter than each completion is let pass.
        canaries = [text for prompt in prompts[:2] for text in (*TEXTS, prompt)]
        passed = [1.0 / (1 + len(text)) > max(brevities) for text in canaries]
        assert entry.metrics["eval/reward/brevity/canary_pass_fraction"] == fmean(passed) >= 0.2

    # What is learnt from is where it was, and knows nothing of it.
    assert [entry.step for entry in run.entries(CompletionsWritten)] == [1, 2]
    for step in run.entries(StepCompleted):
        assert not any(name.startswith("eval") for name in step.metrics)
        assert step.metrics["reward_mean"] == step.metrics["reward/sum_is_right/mean"]
        assert 0.0 < step.metrics["reward/brevity/mean"] < 1.0
