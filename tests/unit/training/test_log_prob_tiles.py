"""The LM head's arithmetic in place gives what a plain softmax in double precision gives."""

import pytest
import torch
import trl.kernels.chunked_logprob as trl_tiles
from trl.kernels import ChunkedLogProbFunction

from trainer_service.training import log_prob_tiles, overrides
from trainer_service.training.overrides import tiles_in_place

TOKENS, HIDDEN, VOCABULARY = 23, 8, 50
CPU = torch.device("cpu")


@pytest.fixture
def work():
    generator = torch.Generator().manual_seed(0)
    hidden = 3 * torch.randn(TOKENS, HIDDEN, generator=generator)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=generator)
    grad = torch.randn(TOKENS, generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets, grad


def plainly(hidden, weight, targets, grad, scale):
    hidden, weight = (x.detach().double().requires_grad_() for x in (hidden, weight))
    logps = torch.log_softmax(hidden @ weight.t() * scale, dim=1)
    chosen = logps.gather(1, targets[:, None])[:, 0]
    chosen.backward(grad.double())
    return chosen, -(logps.exp() * logps).sum(dim=1), hidden.grad, weight.grad


@pytest.mark.parametrize("columns_per_tile", [16, 64])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_agrees_with_a_plain_softmax(monkeypatch, work, temperature, columns_per_tile):
    monkeypatch.setattr(log_prob_tiles, "_PIECE", 5 * columns_per_tile)
    monkeypatch.setattr(overrides, "TILE_TOKENS", 13)

    def never(*_, **__):
        raise AssertionError("TRL's own tile was taken")

    monkeypatch.setattr(trl_tiles, "_forward_tile", never)
    monkeypatch.setattr(trl_tiles, "_backward_tile", never)
    hidden, weight, targets, grad = work
    with tiles_in_place(CPU):
        logps, entropies, *_ = ChunkedLogProbFunction.apply(
            hidden, weight, None, targets, temperature, columns_per_tile, None, 1.5, ("log_probs", "entropy")
        )
        logps.backward(grad)
    expected = plainly(hidden, weight, targets, grad, 1.5 / temperature)
    for ours, theirs in zip((logps, entropies, hidden.grad, weight.grad), expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("softcap", "outputs"), [(5.0, ("log_probs",)), (None, ("log_probs", "is_top1"))])
def test_leaves_to_trl_what_it_does_not_know(monkeypatch, work, softcap, outputs):
    taken = []
    original = trl_tiles._forward_tile

    def noted(*arguments, **how):
        taken.append(True)
        original(*arguments, **how)

    monkeypatch.setattr(trl_tiles, "_forward_tile", noted)
    hidden, weight, targets, _ = work
    with tiles_in_place(CPU):
        ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, 64, softcap, 1.0, outputs)
    assert taken


def test_the_patch_is_taken_back():
    originals = trl_tiles._forward_tile, trl_tiles._backward_tile
    with pytest.raises(ZeroDivisionError), tiles_in_place(CPU):
        assert trl_tiles._forward_tile is not originals[0]
        raise ZeroDivisionError
    assert (trl_tiles._forward_tile, trl_tiles._backward_tile) == originals
