"""How a batch is split over devices, and what would work where it cannot be."""

from __future__ import annotations

import math

from plaudit.errors import FieldViolation

_BATCH = "hyperparameters.global_batch_size"
_MICRO = "hyperparameters.micro_batch_size"


def batch_violations(
    batch: int,
    *,
    world_size: int,
    group_size: int,
    micro_batch_size: int,
    micro_is_given: bool,
    most: int,
    too_few: str | None,
) -> list[FieldViolation]:
    """What keeps a batch of `batch` rows from being split over `world_size` devices.

    It takes at most `most` rows (`too_few` says why where it takes more), whole groups of `group_size`, the
    same number on every device, there in passes of `micro_batch_size`. Where that `micro_is_given` by the
    job, what is proposed keeps it where it can. Every value proposed works.
    """
    kept = micro_batch_size if micro_is_given else 1
    if too_few is not None:
        return [FieldViolation(_BATCH, f"{too_few}; {_sizes(world_size, group_size, kept, most, most)}")]
    share, rest = divmod(batch, world_size)
    if rest:
        return [
            FieldViolation(
                _BATCH,
                f"{batch} cannot be split evenly over {world_size} devices; "
                f"{_sizes(world_size, group_size, kept, batch, most)}",
            )
        ]
    if share % micro_batch_size:
        fitting = max(rows for rows in range(1, min(micro_batch_size, share) + 1) if share % rows == 0)
        where = (
            f"global_batch_size ({batch})"
            if world_size == 1
            else (f"the {share} rows that each of {world_size} devices gets of global_batch_size ({batch})")
        )
        return [FieldViolation(_MICRO, f"{micro_batch_size} does not divide {where}; {fitting} would work")]
    return []


def _sizes(world_size: int, group_size: int, micro: int, near: int, most: int) -> str:
    """The batch sizes around `near`, at most `most`, that can be split; or the number of devices that can."""
    kept = _around(math.lcm(world_size * micro, group_size), near, most)
    if kept:
        return f"{' or '.join(map(str, kept))} would work"
    split = _around(math.lcm(world_size, group_size), near, most)
    if split:
        share = split[0] // world_size
        fitting = max(rows for rows in range(1, min(micro, share) + 1) if share % rows == 0)
        return f"{split[0]} with micro_batch_size {fitting} would work"
    devices = max(n for n in range(1, world_size + 1) if math.lcm(n, group_size) <= most)
    size = _around(math.lcm(devices, group_size), near, most)[0]
    return f"{size} on {devices} {'device' if devices == 1 else 'devices'} with micro_batch_size 1 would work"


def _around(unit: int, near: int, most: int) -> list[int]:
    """The multiples of `unit` next to `near`, from below and above, as far as they are from 1 to `most`."""
    below = near // unit * unit
    sizes = [below] if below == near else [below, below + unit]
    return [size for size in sizes if 0 < size <= most] or ([most // unit * unit] if most >= unit else [])
