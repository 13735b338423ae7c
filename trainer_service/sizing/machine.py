"""How much memory there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MEMINFO: Final = Path("/proc/meminfo")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_NO_LIMIT_BYTES: Final = 1 << 60
"""Above it a limit of the first version of control groups says that there is none."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run trains on: an accelerator, or the host itself."""

    name: str
    memory_bytes: int
    is_accelerator: bool


def host_memory_bytes() -> int:
    """Memory that this process may use at most: the machine's, or its container's share of it. Blocks."""
    limits = [limit for limit, _ in _group_limits()]
    return min(_meminfo("MemTotal"), *limits) if limits else _meminfo("MemTotal")


def free_host_memory_bytes() -> int:
    """How much of it is free now. Blocks."""
    free = [limit - used for limit, used in _group_limits()]
    return max(min(_meminfo("MemAvailable"), *free), 0) if free else _meminfo("MemAvailable")


def _meminfo(wanted: str) -> int:
    for line in _MEMINFO.read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name == wanted:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"{_MEMINFO} does not say {wanted}")


def _group_limits() -> Iterator[tuple[int, int]]:
    """The limit of this control group, and what counts against it now, where there is a limit."""
    for folder, limit_name, usage_name in _group_folders():
        try:
            limit = int((folder / limit_name).read_text("ascii"))
            used = int((folder / usage_name).read_text("ascii"))
            cached = _inactive_file_bytes(folder / "memory.stat")
        except (OSError, ValueError):
            # "max", or a folder that is not mounted here.
            continue
        if limit < _NO_LIMIT_BYTES:
            yield limit, max(used - cached, 0)


def _inactive_file_bytes(stat: Path) -> int:
    """Cached files, which the kernel drops before it kills anybody."""
    for line in stat.read_text("ascii").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _group_folders() -> Iterator[tuple[Path, str, str]]:
    try:
        lines = _MEMBERSHIP.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, names = _CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        elif hierarchy == "0":
            top, names = _CGROUPS, ("memory.max", "memory.current")
        else:
            continue
        # In a container the group's path is the host's, and its folder is mounted at the top.
        for folder in {top / group.lstrip("/"), top}:
            yield folder, *names
