"""Parts of a view that detectors compare: now, the beginning, and what lies between."""

from __future__ import annotations

import math

from gateway.health import thresholds as at
from gateway.health.series import Level, Rows, SeriesView, level, mean
from plaudit.types import metrics as names


def newest(view: SeriesView) -> Rows:
    """The newest rollouts: now."""
    return view.tail[-at.BLOCK_ROLLOUTS :]


def earlier_blocks(view: SeriesView) -> list[Rows]:
    """The job's beginning, and the blocks of the tail that lie before now, oldest first."""
    size = at.BLOCK_ROLLOUTS
    ends = range(len(view.tail) - size, size - 1, -size)
    return [view.head, *(view.tail[end - size : end] for end in reversed(ends))]


def reward(rows: Rows) -> Level:
    """Mean reward of some rollouts."""
    return level(rows, names.REWARD_MEAN)


def best_before(view: SeriesView) -> tuple[Rows, Level]:
    """The block before now with the highest mean reward; the beginning where none has one."""
    return max(
        ((rows, reward(rows)) for rows in earlier_blocks(view)),
        key=lambda block: -math.inf if math.isnan(block[1].mean) else block[1].mean,
    )


def reward_spread(view: SeriesView) -> float:
    """Standard deviation of the rewards of single completions, the larger one of beginning and tail: what a
    change of their mean is measured by. 0 where they were never seen to differ.
    """
    found = (mean(rows, names.REWARD_STD_BATCH) for rows in (view.head, view.tail))
    return max((value for value in found if math.isfinite(value)), default=0.0)


def gained(now: Level, before: Level, spread: float) -> bool:
    """Whether the reward rose, beyond doubt and by more than a little."""
    return now.above(before, at.CERTAIN_ERRORS) and now.mean - before.mean >= at.CLEAR_SHARE * spread


def fell(now: Level, before: Level, spread: float, share: float = at.CLEAR_SHARE) -> bool:
    """Whether the reward fell, beyond doubt and by at least `share` of the spread."""
    return before.above(now, at.CERTAIN_ERRORS) and before.mean - now.mean >= share * spread


def is_no_better(now: Level, before: Level) -> bool:
    """Whether the reward is not seen to be higher than before. False where one of them is not known."""
    return now.mean <= before.mean + at.UNCERTAIN_ERRORS * math.hypot(now.error, before.error)
