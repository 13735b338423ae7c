"""A window read from stored rows is the one that saw every step."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from judged_series import SETTING

from gateway.health import Window


@given(through=st.integers(1, 400), num_iterations=st.integers(1, 5), more=st.integers(0, 30))
def test_where_it_begins_to_look_makes_no_difference(through: int, num_iterations: int, more: int) -> None:
    setting = replace(SETTING, num_iterations=num_iterations)

    def rows(ends: tuple[int, int], every: int) -> list[tuple[int, dict[str, float]]]:
        return [(s, {"loss": float(s)}) for s in range(ends[0], ends[1] + 1) if (s - 1) % every == 0]

    begun_later = Window(
        setting,
        head=rows(Window.head_range(setting, through), num_iterations),
        tail=rows(Window.tail_range(setting, through), num_iterations),
        steps=rows(Window.steps_range(through), 1),
    )
    saw_all = Window(setting)
    for step in range(1, through + more + 1):
        saw_all.add(step, {"loss": float(step)})
        if step > through:
            begun_later.add(step, {"loss": float(step)})
    assert begun_later.view() == saw_all.view()
    assert saw_all.view().rollout_count == len(
        {(s - 1) // num_iterations for s in range(1, through + more + 1)}
    )
