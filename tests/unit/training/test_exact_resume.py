"""Six steps straight are the same as three, a stop, and three more by another process's trainer."""

import math

import pytest
import torch
from peft import LoraConfig
from training_bench import length_reward

from plaudit.types.metrics import TIMING_METRICS
from plaudit.types.scoring import Failed, FailureCode
from trainer_service.journal import CheckpointSaved, StepCompleted
from trainer_service.training.checkpoints import open_checkpoint


def adapter():
    return LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM"
    )


def told(bench):
    return {
        entry.step: {
            name: value
            for name, value in entry.metrics.items()
            if name not in TIMING_METRICS and not name.endswith("latency_p95_seconds")
        }
        for entry in bench.entries(StepCompleted)
    }


def texts(bench):
    return {
        rollout.step: [(s.prompt.row_index, s.completion.text) for s in rollout.samples_B]
        for rollout in bench.rollouts
    }


@pytest.mark.parametrize("num_iterations", [1, 2])
@pytest.mark.parametrize("make_adapter", [None, adapter])
def test_resume_is_exact(make_bench, num_iterations, make_adapter):
    # 5 prompts, 4 a rollout: the runs go through several passes and stop in the middle of one.
    stop_at, steps = 3 * num_iterations, 6 * num_iterations
    settings = {
        "prompt_count": 5,
        "max_steps": steps,
        "num_iterations": num_iterations,
        "kl_coef": 0.04,
        "weight_decay": 0.1,
        "lr_scheduler": "cosine",
        "temperature": 0.9,
        "seed": 5,
    }

    def bench_with(attempt):
        return make_bench(adapter=make_adapter() if make_adapter else None, attempt=attempt, **settings)

    straight = bench_with(1)
    straight.trainer.train()

    first = bench_with(2)

    def stop(prompt, completion, step):
        if step + num_iterations > stop_at:
            first.scorer.reason = "enough"
        return length_reward(prompt, completion, step)

    first.scorer.outcomes_of = stop
    first.trainer.train()
    saved = first.entries(CheckpointSaved)[-1]
    assert saved.step == stop_at

    second = bench_with(3)
    checkpoint = open_checkpoint(second.artifact_root, saved.uri)
    assert checkpoint.prompts_consumed == 12
    second.trainer.train(resume_from_checkpoint=str(checkpoint.folder))

    assert list(told(first)) == list(range(1, stop_at + 1))
    assert list(told(second)) == list(range(stop_at + 1, steps + 1))
    resumed = told(first) | told(second)
    for step, metrics in told(straight).items():
        for name, value in metrics.items():
            assert resumed[step][name] == value or (math.isnan(value) and math.isnan(resumed[step][name])), (
                step,
                name,
            )
    assert texts(first) | texts(second) == texts(straight)
    for name, weight in straight.parameters().items():
        assert torch.equal(weight, second.parameters()[name]), name
    # The reference is the base model, not the checkpoint: the divergence goes on from where it was.
    assert told(second)[stop_at + 1]["kl_div"] > 0.0
    assert told(straight)[1]["kl_div"] == 0.0


@pytest.mark.parametrize("num_iterations", [1, 2])
def test_an_unscored_step_is_done_again_as_if_it_had_been_scored_at_once(make_bench, num_iterations):
    settings = {
        "prompt_count": 5,
        "max_steps": 4 * num_iterations,
        "num_iterations": num_iterations,
        "weight_decay": 0.1,
        "lr_scheduler": "linear",
        "seed": 5,
    }
    away_at = 2 * num_iterations + 1

    def away(prompt, completion, step):
        gone = {"length": Failed(FailureCode.UNAVAILABLE, "connection refused")}
        return gone if step == away_at else length_reward(prompt, completion, step)

    straight = make_bench(attempt=1, **settings)
    straight.trainer.train()
    first = make_bench(attempt=2, outcomes_of=away, **settings)
    first.trainer.train()
    assert list(told(first)) == list(range(1, away_at + 1))
    saved = first.entries(CheckpointSaved)[-1]

    second = make_bench(attempt=3, **settings)
    checkpoint = open_checkpoint(second.artifact_root, saved.uri)
    assert checkpoint.prompts_consumed == 8
    second.trainer.train(resume_from_checkpoint=str(checkpoint.folder))
    # Steps 1 to 2, then all from the one that was not scored.
    assert told(second) == {step: m for step, m in told(straight).items() if step >= away_at}
    assert texts(first) | texts(second) == texts(straight)
    assert all(torch.equal(w, second.parameters()[n]) for n, w in straight.parameters().items())

    still_away = make_bench(attempt=4, outcomes_of=away, **settings)
    still_away.trainer.train(resume_from_checkpoint=str(checkpoint.folder))
    assert list(told(still_away)) == [away_at]
    assert still_away.entries(CheckpointSaved) == []
