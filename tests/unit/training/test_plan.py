"""Steps, passes over the dataset, and how much passes through the model at once."""

import dataclasses
import os

import pytest
import torch
from training_bench import load_model
from trl.trainer.utils import RepeatSampler

from plaudit.errors import InvalidArgumentError
from plaudit.types.hyperparameters import GrpoHyperparameters
from trainer_service.training import memory
from trainer_service.training.config import plan_training
from trainer_service.training.seeding import RunSampler, pass_order


def plan(rows, micro=4, world=1, **h):
    hyperparameters = GrpoHyperparameters(**{"rollouts_per_prompt": 2, "global_batch_size": 8, **h})
    return plan_training(hyperparameters, row_count=rows, micro_batch_size=micro, world_size=world)


def test_one_pass_has_the_order_of_trls_sampler():
    trl = RepeatSampler(range(12), mini_repeat_count=2, batch_size=4, repeat_count=4, shuffle=True, seed=9)
    ours = RunSampler(plan(12, num_iterations=2, micro=4), 9)
    assert list(ours) == list(trl)
    assert len(ours) == len(trl)


def test_every_row_comes_once_a_pass_and_none_is_left_out():
    for rows in range(4, 20):
        one = plan(rows, num_epochs=3)
        # One micro-batch a step, so that no batch is repeated.
        order = list(RunSampler(dataclasses.replace(one, accumulation_steps=1), 5))[:: one.group_size]
        for number in range(3):
            assert sorted(order[number * rows : (number + 1) * rows]) == list(range(rows))
            assert order[number * rows : (number + 1) * rows] == pass_order(5, number, rows)
        assert len(order) == 3 * rows + one.borrowed_prompts
        assert 0 <= one.borrowed_prompts < one.prompts_per_step
        assert one.total_steps == -(-3 * rows // 4)


def test_a_dataset_smaller_than_a_step_is_refused_with_what_would_work():
    with pytest.raises(InvalidArgumentError) as error:
        plan(3)
    assert error.value.violations[0].field == "hyperparameters.global_batch_size"
    assert "the dataset has 3; 6 would work" in error.value.violations[0].message
    assert plan(3, micro=2, global_batch_size=6).prompts_per_step == 3


def test_a_micro_batch_that_does_not_divide_is_refused():
    with pytest.raises(InvalidArgumentError, match="2 would work"):
        plan(8, micro=3)
    with pytest.raises(InvalidArgumentError, match="micro_batch_size"):
        plan(8, micro=8, world=2)
    assert plan(8, micro=4, world=2).accumulation_steps == 1


def test_steps_and_boundaries():
    one = plan(12, num_iterations=3, checkpoint_every=4.0)
    assert (one.total_steps, one.checkpoint_steps) == (9, 6)
    assert [step for step in range(1, 10) if one.is_boundary(step)] == [3, 6, 9]
    assert [one.prompts_consumed(step) for step in (1, 3, 4)] == [4, 4, 8]
    assert plan(12, max_steps=5, num_iterations=3).rollout_count == 2


def choose(model, free, monkeypatch, **h):
    monkeypatch.setattr(memory, "free_memory_bytes", lambda device: free)
    hyperparameters = GrpoHyperparameters(**{"global_batch_size": 96, "rollouts_per_prompt": 2, **h})
    return memory.choose_micro_batch_size(
        hyperparameters, model, longest_prompt=100, bytes_per_value=4, gradient_checkpointing=False
    )


def test_the_micro_batch_follows_the_memory(model_dir, monkeypatch):
    model = load_model(model_dir)
    assert choose(model, 64 * 2**30, monkeypatch) == 48  # the largest divisor of 96 up to 64
    assert choose(model, 64 * 2**30, monkeypatch, micro_batch_size=3) == 3
    sizes = [choose(model, free, monkeypatch) for free in (2**20, 2**26, 2**28, 2**30)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1 and 1 < sizes[1] < 48
    assert all(96 % size == 0 for size in sizes)


def test_free_memory_is_that_of_the_machine():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory.free_memory_bytes(torch.device("cpu")) < total
