"""Units that are ready to be sent, gathered by the kind of batch that they can share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

from plaudit.scoring._work import BatchKind, Unit, envelope_bytes

FRAME_COMPLETIONS: Final = 64
BACKLOG_FRAME_COMPLETIONS: Final = 256
FRAME_BYTES: Final = 1_000_000
"""What is ready together travels together, up to these: a frame costs more than a completion in it."""

FRAMES_KEPT: Final = 4
"""Frames have more than FRAME_COMPLETIONS where so many are left for each replica, and its window has room
for as many: a server that works off batch by batch, several at a time, must not run out of them."""


class ReadyQueue:
    """Units of one kind, first come first served."""

    def __init__(self, kind: BatchKind) -> None:
        self.kind = kind
        self.completions = 0
        self.bytes = 0
        self._units: deque[Unit] = deque()

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._units)

    def push(self, unit: Unit) -> None:
        """Puts a unit last."""
        self._units.append(unit)
        self.completions += unit.completions
        self.bytes += unit.frame_bytes

    def pop(self) -> Unit:
        """Takes the first unit."""
        unit = self._units.popleft()
        self.completions -= unit.completions
        self.bytes -= unit.frame_bytes
        return unit

    def head(self) -> Unit | None:
        """The first unit that somebody still waits for; the others before it are dropped."""
        while self._units:
            unit = self._units[0]
            if self._is_wanted(unit):
                return unit
            self.pop()
        return None

    def take(self, max_completions: int, max_bytes: int) -> list[Unit]:
        """Takes units for one batch: the first in any case, then as many as stay within both limits."""
        units: list[Unit] = []
        prompts: set[str] = set()
        completions, size = 0, envelope_bytes(self.kind.keys)
        waiting = self._units
        gone_completions = gone_bytes = 0
        while waiting:
            unit = waiting[0]
            first = unit.first
            prompt, _, prompt_size = first.head
            group_id = prompt.group_id
            added = unit.frame_bytes - (prompt_size if group_id in prompts else 0)
            if units and (completions + unit.completions > max_completions or size + added > max_bytes):
                break
            waiting.popleft()
            gone_completions += unit.completions
            gone_bytes += unit.frame_bytes
            if self._is_wanted(unit):
                units.append(unit)
                prompts.add(group_id)
                completions += unit.completions
                size += added
        self.completions -= gone_completions
        self.bytes -= gone_bytes
        return units

    def _is_wanted(self, unit: Unit) -> bool:
        if unit.first.taken and unit.is_taken:
            return False
        return not self.kind.is_retry or bool(unit.open_keys())


class ReadyWork:
    """All ready units of a server."""

    def __init__(self) -> None:
        self._queues: dict[BatchKind, ReadyQueue] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Unit]:
        return (unit for queue in self._queues.values() for unit in queue)

    def push(self, units: Iterable[Unit]) -> None:
        """Puts units last, each among its kind."""
        queue: ReadyQueue | None = None
        for unit in units:
            if queue is None or unit.kind is not queue.kind:
                queue = self._queues.get(unit.kind)
                if queue is None:
                    queue = self._queues[unit.kind] = ReadyQueue(unit.kind)
            queue.push(unit)

    def oldest(self, but: Container[BatchKind] = ()) -> tuple[ReadyQueue, Unit] | None:
        """The queue whose first unit has been ready longest, and that unit; none of the kinds in `but`."""
        best: tuple[ReadyQueue, Unit] | None = None
        for kind in list(self._queues):
            queue = self._queues[kind]
            unit = queue.head()
            if unit is None:
                del self._queues[kind]
            elif kind in but:
                continue
            elif best is None or unit.ready_at < best[1].ready_at:
                best = queue, unit
        return best

    def remove_where(self, condition: Callable[[Unit], bool], *, retries_only: bool) -> list[Unit]:
        """Takes out the units that meet the condition. `retries_only`: of those that were sent before."""
        removed: list[Unit] = []
        for kind, queue in list(self._queues.items()):
            if (kind.is_retry or not retries_only) and any(condition(unit) for unit in queue):
                kept = self._queues[kind] = ReadyQueue(kind)
                for unit in queue:
                    if condition(unit):
                        removed.append(unit)
                    else:
                        kept.push(unit)
        return removed
