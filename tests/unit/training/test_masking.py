"""What leaves the loss, and how a batch is divided."""

import numpy as np
import pytest
import torch

from trainer_service.training.advantages import compute_advantages
from trainer_service.training.masking import LOSS_SCALE, mask_batch, micro_batches, order_rows

NAN = float("nan")


def batch_of(lengths, width=5, prompt_lengths=None):
    rows = len(lengths)
    prompt_lengths = prompt_lengths or [2] * rows
    columns = torch.arange(width)
    prompts = torch.arange(max(prompt_lengths))
    mask = (columns < torch.tensor(lengths)[:, None]).long()
    return {
        "prompt_ids": torch.arange(rows)[:, None].expand(-1, max(prompt_lengths)),
        "prompt_mask": (prompts >= max(prompt_lengths) - torch.tensor(prompt_lengths)[:, None]).long(),
        "completion_ids": torch.arange(rows)[:, None].expand(-1, width),
        "completion_mask": mask,
        "advantages": torch.full((rows,), 99.0),
        "num_items_in_batch": mask.sum(),
        "old_per_token_logps": torch.full((rows, width), -200.0),
    }


def test_what_is_masked_cannot_overflow():
    """exp(0 - (-200)) is infinite in float32, and infinity times a mask of 0 is NaN."""
    advantages = compute_advantages([1.0, 0.0, NAN, 1.0], 2, "group")
    masked = mask_batch(batch_of([5, 2, 3, 4]), advantages, torch.zeros(4, dtype=torch.bool), "dapo")
    log_ratios = 0.0 - masked["old_per_token_logps"] * (1 - masked["completion_mask"])
    assert torch.equal(log_ratios, torch.zeros_like(log_ratios))
    assert masked["completion_mask"].sum(dim=1).tolist() == [5, 2, 0, 0]
    assert masked["num_items_in_batch"] == 7
    assert masked[LOSS_SCALE] == 1.0


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo"])
def test_losses_by_rows_are_scaled_by_rows_kept(loss_type):
    advantages = compute_advantages([1.0, 0.0, NAN, 1.0, NAN, NAN, 3.0, 3.0], 2, "group")
    hidden = torch.zeros(8, dtype=torch.bool)
    hidden[0] = True  # truncated: out of the loss, but a row as before
    masked = mask_batch(batch_of([3] * 8), advantages, hidden, loss_type)
    assert masked[LOSS_SCALE] == 8 / 4
    assert masked["completion_mask"].sum(dim=1).tolist() == [0, 3, 0, 0, 0, 0, 3, 3]


def test_a_batch_of_nothing_keeps_a_finite_scale():
    advantages = compute_advantages([NAN] * 4, 2, "group")
    masked = mask_batch(batch_of([3] * 4), advantages, torch.zeros(4, dtype=torch.bool), "grpo")
    assert masked["num_items_in_batch"] == 0
    assert torch.isfinite(masked[LOSS_SCALE])


def prompts_of(lengths):
    return [[10 + row] * length for row, length in enumerate(lengths)]


def test_rows_of_like_length_come_together():
    order_B = order_rows(prompts_of([2, 1, 2, 2, 2, 2]), [1, 5, 2, 4, 3, 5], "dapo", share_prompts=False)
    assert order_B.tolist() == [5, 1, 3, 4, 2, 0]
    parts = micro_batches({**batch_of([1, 5, 2, 4, 3, 5]), LOSS_SCALE: torch.tensor(1.5)}, order_B, 3, "dapo")
    assert [part["completion_ids"][:, 0].tolist() for part in parts] == [[5, 1], [3, 4], [2, 0]]
    assert all(part[LOSS_SCALE] == 1.5 for part in parts)
    assert all(part["num_items_in_batch"] == 20 for part in parts)
    for part in parts:
        assert torch.equal(part["prompt_ids"][:, 0], part["completion_ids"][:, 0])


def test_completions_of_a_prompt_come_together():
    one, other, third = [7, 7], [7, 7, 7], [8, 8]
    prompts = [one, one, other, other, third, third]
    order_B = order_rows(prompts, [2, 4, 1, 6, 6, 3], "grpo", share_prompts=True)
    assert order_B.tolist() == [3, 2, 4, 5, 1, 0]


def test_a_bnpo_micro_batch_without_a_token_leaves_the_mean():
    batch = batch_of([0, 0, 3, 3])
    scales = set()
    for seed in range(20):
        torch.manual_seed(seed)
        order_B = order_rows(prompts_of([2] * 4), [0, 0, 3, 3], "bnpo", share_prompts=True)
        parts = micro_batches(batch, order_B, 2, "bnpo")
        empty = sum(not part["completion_mask"].any() for part in parts)
        assert all(part[LOSS_SCALE] == 2 / (2 - empty) for part in parts)
        scales.add(parts[0][LOSS_SCALE].item())
        rows = torch.cat([part["completion_ids"][:, 0] for part in parts])
        assert sorted(rows.tolist()) == [0, 1, 2, 3]
    assert scales == {1.0, 2.0}


def test_advantages_are_ours():
    advantages = compute_advantages([1.0, 0.0, 5.0, 2.0], 2, "none")
    masked = mask_batch(batch_of([3] * 4), advantages, torch.zeros(4, dtype=torch.bool), "dapo")
    np.testing.assert_array_equal(masked["advantages"].numpy(), [0.5, -0.5, 1.5, -1.5])
