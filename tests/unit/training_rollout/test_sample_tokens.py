"""Sampling against transformers' warpers, and against distributions worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from trainer_service.training.sampling import KeyedUniforms, NonFiniteLogits, sample_tokens


def warped_probabilities(
    logits_V: torch.Tensor, temperature: float, top_p: float, top_k: int
) -> torch.Tensor:
    """An implementation that is not ours."""
    scores = TemperatureLogitsWarper(temperature)(None, logits_V[None].double())
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return scores.softmax(-1)[0]


SETTINGS = [(1.0, 1.0, 0), (0.7, 1.0, 0), (1.5, 0.8, 0), (1.0, 1.0, 5), (0.9, 0.6, 12), (1.0, 0.05, 0)]


@pytest.mark.parametrize(("temperature", "top_p", "top_k"), SETTINGS)
def test_frequencies_follow_the_distribution(temperature: float, top_p: float, top_k: int) -> None:
    logits_V = torch.randn(40, generator=torch.Generator().manual_seed(3)) * 1.5
    expected_V = warped_probabilities(logits_V, temperature, top_p, top_k)
    n = 40_000
    uniforms = KeyedUniforms(1, 1).draw(range(n), 0)
    tokens = sample_tokens(
        logits_V.expand(n, -1), uniforms, temperature=temperature, top_p=top_p, top_k=top_k
    )
    counts_V = torch.bincount(tokens, minlength=40).double()
    kept = expected_V > 0
    assert counts_V[~kept].sum().item() == 0
    degrees = int(kept.sum()) - 1
    if degrees:
        statistic = ((counts_V - n * expected_V)[kept] ** 2 / (n * expected_V[kept])).sum()
        p_value = torch.special.gammaincc(torch.tensor(degrees / 2, dtype=torch.float64), statistic / 2)
        assert p_value.item() > 1e-4


@pytest.mark.parametrize("vocabulary", [40, 128, 300])
@pytest.mark.parametrize(("temperature", "top_p", "top_k"), SETTINGS)
def test_evenly_spread_uniforms_give_the_exact_shares(
    temperature: float, top_p: float, top_k: int, vocabulary: int
) -> None:
    logits_V = torch.randn(vocabulary, generator=torch.Generator().manual_seed(4)) * 1.5
    expected_V = warped_probabilities(logits_V, temperature, top_p, top_k)
    n = 20_000
    uniforms = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    tokens = sample_tokens(
        logits_V.expand(n, -1), uniforms, temperature=temperature, top_p=top_p, top_k=top_k
    )
    counts_V = torch.bincount(tokens, minlength=vocabulary).double()
    assert (counts_V - n * expected_V).abs().max().item() <= 1.01
    assert bool((tokens[1:] >= tokens[:-1]).all()), "the inverse of a distribution function does not fall"


def test_by_hand() -> None:
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()

    def token(uniform: float, **settings: float) -> int:
        chosen = {"temperature": 1.0, "top_p": 1.0, "top_k": 0} | settings
        return int(sample_tokens(logits[None], torch.tensor([uniform], dtype=torch.float64), **chosen))

    assert [token(u) for u in (0.0, 0.05, 0.15, 0.29, 0.31, 0.59, 0.61, 0.999)] == [0, 0, 1, 1, 2, 2, 3, 3]
    # Of the two likeliest, 0.3 and 0.4, the first has 3/7.
    assert [token(u, top_k=2) for u in (0.0, 0.42, 0.43, 0.99)] == [2, 2, 3, 3]
    # 0.4 alone does not reach 0.5, so 0.3 is in too.
    assert [token(u, top_p=0.5) for u in (0.0, 0.42, 0.43)] == [2, 2, 3]
    assert [token(u, top_p=0.39) for u in (0.0, 0.99)] == [3, 3]
    # At temperature 1/2 the weights are squared: 1, 4, 9, 16 of 30.
    assert [token(u, temperature=0.5) for u in (0.032, 0.034, 0.166, 0.167, 0.46, 0.47)] == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(("temperature", "top_p", "top_k"), [(1.0, 1.0, 0), (0.8, 0.9, 50)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_does_not_depend_on_the_others(
    dtype: torch.dtype, temperature: float, top_p: float, top_k: int
) -> None:
    logits = (torch.randn(33, 3001, generator=torch.Generator().manual_seed(0)) * 2).to(dtype)
    uniforms = KeyedUniforms(2, 2).draw(range(33), 0)

    def sample(rows: torch.Tensor) -> torch.Tensor:
        return sample_tokens(logits[rows], uniforms[rows], temperature=temperature, top_p=top_p, top_k=top_k)

    together = sample(torch.arange(33))
    order = torch.randperm(33, generator=torch.Generator().manual_seed(1))
    assert torch.equal(sample(order), together[order])
    assert torch.equal(torch.cat([sample(torch.tensor([row])) for row in range(33)]), together)
    assert torch.equal(torch.cat([sample(torch.arange(0, 5)), sample(torch.arange(5, 33))]), together)


@pytest.mark.parametrize("around", [1, 127, 128, 400])
def test_the_ends_of_the_range_reach_only_possible_tokens(around: int) -> None:
    # Those around the three underflow to probability 0; the largest uniform must not fall off the end.
    logits = torch.full((1, 2 * around + 3), -1e4)
    logits[0, around : around + 3] = torch.tensor([0.0, 1.0, 0.5])
    largest = math.nextafter(1.0, 0.0)
    for uniform, token in ((0.0, around), (largest, around + 2)):
        sampled = sample_tokens(
            logits, torch.tensor([uniform], dtype=torch.float64), temperature=1.0, top_p=1.0, top_k=0
        )
        assert sampled.tolist() == [token]


def test_ties_at_the_kth_place_are_kept_as_in_transformers() -> None:
    logits = torch.tensor([1.0, 3.0, 1.0, 1.0])
    assert (warped_probabilities(logits, 1.0, 1.0, 2) > 0).tolist() == [True] * 4
    uniforms = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    tokens = sample_tokens(logits.expand(100, -1), uniforms, temperature=1.0, top_p=1.0, top_k=2)
    assert set(tokens.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_named(bad: float) -> None:
    logits = torch.zeros(4, 10)
    logits[1, 3] = bad
    logits[3, 0] = bad
    with pytest.raises(NonFiniteLogits, match=r"rows \[1, 3\]") as caught:
        sample_tokens(logits, torch.zeros(4, dtype=torch.float64), temperature=1.0, top_p=1.0, top_k=0)
    assert caught.value.rows == (1, 3)


def test_large_finite_logits_are_fine() -> None:
    logits = torch.full((2, 5000), 3e38)
    logits[1, 7] = -3e38
    uniforms = torch.tensor([0.5, 0.5], dtype=torch.float64)
    tokens = sample_tokens(logits, uniforms, temperature=1.0, top_p=1.0, top_k=0)
    assert tokens.tolist() == [2500, 2500]
