"""The rollout's cache holds what transformers' own would hold, after any spreading, growing and dropping."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, Gemma3TextConfig, PreTrainedConfig, Qwen2Config

from trainer_service.training._rollout_cache import RolloutCache, compacted_order

PLAIN = Qwen2Config(num_hidden_layers=2)
WINDOWED = Gemma3TextConfig(
    num_hidden_layers=2, sliding_window=6, layer_types=["sliding_attention", "full_attention"]
)


@settings(deadline=None)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_rows_that_stay_are_each_kept_once_and_few_move(case: tuple[int, set[int]]) -> None:
    count, over = case
    order = compacted_order(count, sorted(over))
    assert sorted(order) == [row for row in range(count) if row not in over]
    # A row either stays in its place or comes from beyond the end: moving in any order loses nothing.
    assert all(source == place or source >= len(order) for place, source in enumerate(order))
    assert sum(source != place for place, source in enumerate(order)) <= len(over)


@settings(deadline=None)
@given(st.data(), st.sampled_from([PLAIN, WINDOWED]))
def test_the_cache_equals_transformers_own(data: st.DataObject, config: PreTrainedConfig) -> None:
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))

    def states(rows: int, length: int) -> torch.Tensor:
        return torch.randn(rows, 2, length, 3, generator=generator)

    ours, theirs = RolloutCache(config), DynamicCache(config=config)

    def update(rows: int, length: int) -> None:
        for layer in range(2):
            keys, values = states(rows, length), states(rows, length)
            got = ours.update(keys, values, layer)
            expected = theirs.update(keys, values, layer)
            assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])
            assert ours.get_seq_length(layer) == theirs.get_seq_length(layer)
            assert ours.get_mask_sizes(1, layer) == theirs.get_mask_sizes(1, layer)

    prompts = data.draw(st.integers(1, 3))
    update(prompts, data.draw(st.integers(1, 9)))
    sources = torch.tensor(data.draw(st.lists(st.integers(0, prompts - 1), min_size=1, max_size=6)))
    ours.spread(sources, data.draw(st.integers(1, 200)))
    theirs.batch_select_indices(sources)
    rows = len(sources)
    for _ in range(data.draw(st.integers(0, 4))):
        for _ in range(data.draw(st.sampled_from([1, 2, 70]))):
            update(rows, 1)
        over = data.draw(st.sets(st.integers(0, rows - 1), max_size=rows - 1))
        if over:
            order = torch.tensor(compacted_order(rows, sorted(over)))
            ours.keep(order)
            theirs.batch_select_indices(order)
            rows = len(order)
    update(rows, 1)
