"""Whether the kernel killed something for want of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def kernel_memory_kills() -> int | None:
    """Processes of this control group that the kernel has killed for want of memory so far.

    None where the kernel does not count them for this group, as in the root group. The machine's own counter
    (/proc/vmstat) is not asked: it counts what other people's containers do.
    """
    for path in _counter_files():
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def _counter_files() -> Iterator[Path]:
    try:
        lines = _MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder, name = _CGROUPS / "memory", "memory.oom_control"
        elif hierarchy == "0":
            folder, name = _CGROUPS, "memory.events"
        else:
            continue
        yield folder / group.lstrip("/") / name
        # In a container the group's path is the host's, and its folder is mounted at the top.
        yield folder / name
