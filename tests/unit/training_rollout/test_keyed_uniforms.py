"""Uniform numbers depend on their key alone: seed, purpose, step, completion, position."""

from __future__ import annotations

import hashlib
import math
import random

import torch

from trainer_service.training.sampling import KeyedUniforms


def test_a_number_does_not_depend_on_what_was_drawn_before_or_beside_it() -> None:
    expected = {
        (index, position): KeyedUniforms(7, 3).draw([index], position).item()
        for index in (0, 1, 5, 1000)
        for position in (0, 1, 255, 256, 700)
    }
    uniforms = KeyedUniforms(7, 3)
    positions = [0, 1, 255, 256, 700] * 2
    random.Random(0).shuffle(positions)
    for position in positions:
        drawn = uniforms.draw(torch.tensor([1000, 0, 5, 1]), position)
        assert drawn.tolist() == [expected[index, position] for index in (1000, 0, 5, 1)]


def test_every_part_of_the_key_gives_another_stream() -> None:
    streams = [
        KeyedUniforms(seed, step, purpose).draw(range(100), 0)
        for seed, step, purpose in ((1, 1, "train"), (2, 1, "train"), (1, 2, "train"), (1, 1, "eval"))
    ] + [KeyedUniforms(1, 1).draw(range(100), 1), KeyedUniforms(1, 1).draw(range(100, 200), 0)]
    values = torch.stack(streams).flatten().tolist()
    assert len(set(values)) == len(values)


def test_neither_neighbouring_completions_nor_positions_are_correlated() -> None:
    uniforms = KeyedUniforms(11, 1)
    table = torch.stack([uniforms.draw(range(400), position) for position in range(400)]) - 0.5
    # The correlation of n independent pairs has a standard deviation of 1 / sqrt(n).
    for left, right in ((table[1:], table[:-1]), (table[:, 1:], table[:, :-1])):
        correlation = (left * right).mean().item() * 12
        assert abs(correlation) < 5 / math.sqrt(left.numel())


def test_numbers_are_uniform() -> None:
    drawn = torch.cat([KeyedUniforms(5, step).draw(range(1000), 17) for step in range(100)])
    assert drawn.dtype == torch.float64
    assert drawn.min().item() >= 0.0 and drawn.max().item() < 1.0
    counts = torch.histc(drawn, bins=50, min=0.0, max=1.0)
    statistic = ((counts - 2000) ** 2 / 2000).sum()
    # P(chi-square with 49 degrees of freedom > statistic)
    assert torch.special.gammaincc(torch.tensor(24.5), statistic / 2).item() > 1e-4


def philox_4x64_10(counter: list[int], key: list[int]) -> list[int]:
    """Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3.3."""
    mask = 2**64 - 1
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [
            (right >> 64) ^ counter[1] ^ key[0],
            right & mask,
            (left >> 64) ^ counter[3] ^ key[1],
            left & mask,
        ]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    return counter


def test_the_stream_is_philox_keyed_by_seed_purpose_step_and_index() -> None:
    purpose = int.from_bytes(hashlib.sha256(b"eval").digest()[:8], "little")
    uniforms = KeyedUniforms(42, 9, "eval")
    for index in (0, 63, 2**40):
        for position in (0, 1, 2, 3, 4, 255, 256, 1030):
            # Counts start at 1: numpy counts up before it draws.
            numbers = philox_4x64_10([position // 4 + 1, index, 9, 0], [42, purpose])
            expected = (numbers[position % 4] >> 11) / 2**53
            assert uniforms.draw([index], position).item() == expected


def test_the_stream_stays_what_it_is() -> None:
    # A resumed run must draw what the run before drew, whatever versions lie between: never change these.
    drawn = [KeyedUniforms(42, 1).draw([0, 1], position).tolist() for position in (0, 300)]
    assert drawn == [
        [0.5795794690862502, 0.6741741123071165],
        [0.4042236389716982, 0.7648556452929798],
    ]
