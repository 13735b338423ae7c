"""Ready units are dealt out to replicas: in full frames, within windows, to the one with the least to do."""

from __future__ import annotations

import asyncio
import math
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring._convert import batch_frame
from plaudit.scoring._outliers import TRIAL_ANSWERS
from plaudit.scoring._ready import (
    BACKLOG_FRAME_COMPLETIONS,
    FRAME_BYTES,
    FRAME_COMPLETIONS,
    FRAMES_KEPT,
    ReadyQueue,
    ReadyWork,
)
from plaudit.scoring._replica import Replica
from plaudit.scoring._standing import Standing
from plaudit.scoring._tracing import trace_id, traceparent
from plaudit.scoring._work import BatchKind, SentBatch, Unit, envelope_bytes
from plaudit.types.scoring import Completion

COMPANY_SECONDS: Final = 0.005
"""The longest that a ready completion waits for others to share its frame."""

_SHORTEST_TIMEOUT_SECONDS: Final = 0.05


class _Plan(NamedTuple):
    """How the units of a kind are dealt out now."""

    full: int
    """Completions that fill a frame."""
    share: int
    """Completions in a batch."""
    is_all: bool
    """Whether all go; else a rest that fills no frame may wait for company."""


class Dealer:
    """Deals out the ready units of one server."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        standing: Standing,
        all_keys: frozenset[str],
        session_scope: str,
        refuse: Callable[[Unit, str], None],
    ) -> None:
        """`refuse` gets a unit that the server cannot take, and why."""
        self.ready = ReadyWork()
        self._replicas = replicas
        self._standing = standing
        self._all_keys = all_keys
        self._session_scope = session_scope
        self._refuse = refuse
        self._max_batch_completions = 1
        self._max_frame_bytes = 1
        self._timer: asyncio.TimerHandle | None = None

    def learn_limits(self) -> None:
        """Takes the strictest limits that a replica names; replicas of one server should agree."""
        described = [r.description for r in self._replicas if r.description is not None]
        self._max_batch_completions = min(d.max_batch_completions for d in described)
        self._max_frame_bytes = min(d.max_frame_bytes for d in described)

    def fits(self, batch: SentBatch) -> bool:
        """Whether a batch that was made before keeps to the limits."""
        return (
            batch.completions <= self._max_batch_completions
            and batch.frame.ByteSize() <= self._max_frame_bytes
        )

    def deal(self, *, flush: bool = False) -> None:
        """Sends what may go now. `flush`: without waiting for company."""
        now = asyncio.get_running_loop().time()
        for broken in self._replicas:
            broken.send_again()
        if not self.ready:
            return
        takers, due = self._standing.takers(), self._standing.due()
        plans: dict[BatchKind, _Plan] = {}
        held_back: set[BatchKind] = set()
        while (oldest := self.ready.oldest(held_back)) is not None:
            queue, head = oldest
            misfit = self._misfit(head)
            if misfit:
                queue.pop()
                self._refuse(head, misfit)
                continue
            trial = next((r for r in due if not (r.in_flight or head.kind.is_retry)), None)
            others = [r for r in takers if r.address not in head.kind.failed_at] or takers
            replica = trial or self._least_loaded(head, others)
            if replica is None:
                if not head.kind.failed_at or head.must_be_alone:
                    return
                held_back.add(head.kind)  # others need not wait until a replica that it may go to has room
                continue
            plan = plans.get(queue.kind)
            goes_on = plan is not None and plan.is_all
            if plan is None:
                plan = self._plan(queue, others)
            if not (flush or goes_on):
                go_at = self._go_at(queue, head, replica, plan, now)
                if go_at > now:
                    self._deal_at(go_at)
                    return
            plans[queue.kind] = plan
            share = min(plan.share, TRIAL_ANSWERS) if trial else plan.share
            most = max(head.completions, min(share, replica.room))
            units = queue.take(most, min(FRAME_BYTES, self._max_frame_bytes))
            batch = self._batch(queue.kind, units, now)
            if trial:
                self._standing.begin_trial(trial, batch.answer_count)
            replica.send(batch)

    def close(self) -> None:
        """Lets go of the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self, queue: ReadyQueue, takers: Sequence[Replica]) -> _Plan:
        ready = queue.completions
        smallest_window = min(replica.window for replica in takers)
        backlog = min(ready // len(takers), smallest_window) // FRAMES_KEPT
        full = max(FRAME_COMPLETIONS, min(backlog, BACKLOG_FRAME_COMPLETIONS))
        full = min(full, self._max_batch_completions)
        # One frame to one replica would leave the others idle, so they share what is ready.
        is_all = ready < len(takers) * full
        return _Plan(full, math.ceil(ready / len(takers)) if is_all else full, is_all)

    def _misfit(self, unit: Unit) -> str:
        size = unit.frame_bytes + envelope_bytes(unit.kind.keys)
        if size > self._max_frame_bytes:
            return f"it takes {size} bytes, and the server's max_frame_bytes is {self._max_frame_bytes}"
        if unit.completions > self._max_batch_completions:
            return (
                f"the group has {unit.completions} completions, and the server's max_batch_completions is "
                f"{self._max_batch_completions}"
            )
        return ""

    def _least_loaded(self, head: Unit, takers: Sequence[Replica]) -> Replica | None:
        best: Replica | None = None
        for replica in takers:
            if head.must_be_alone and replica.in_flight:
                continue
            if replica.has_room_for(head.completions) and (
                best is None or replica.in_flight < best.in_flight
            ):
                best = replica
        return best

    def _go_at(self, queue: ReadyQueue, head: Unit, replica: Replica, plan: _Plan, now: float) -> float:
        """When to send: at once where a frame is full, else when company has had its time."""
        if queue.kind.apart or queue.bytes >= FRAME_BYTES:
            return now
        room = replica.room
        if queue.completions >= min(plan.full, room) and (room >= plan.full or replica.in_flight == 0):
            return now
        # A window that opens by crumbs must not turn full frames into lone completions.
        return max(head.ready_at, replica.room_since) + COMPANY_SECONDS

    def _deal_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self.deal)

    def _batch(self, kind: BatchKind, units: list[Unit], now: float) -> SentBatch:
        timeout = kind.patience.timeout_seconds
        if kind.is_retry:
            # What is left of the budget of the completion that has been under way longest.
            left = min(unit.first_sent_at for unit in units) + kind.patience.retry_seconds - now
            timeout = min(timeout, max(left, _SHORTEST_TIMEOUT_SECONDS))
        # Unique is enough: os.urandom, as in uuid4, would let go of the interpreter for every batch.
        batch_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        by_group: dict[str, tuple[pb.PromptGroup, list[Completion]]] = {}
        count = 0
        for unit in units:
            prompt, message, _ = unit.first.head
            group = by_group.get(prompt.group_id)
            if group is None:
                group = by_group[prompt.group_id] = message, []
            count += unit.completions
            if unit.completions == 1:
                group[1].append(unit.first.completion)
            else:
                group[1].extend([submission.completion for submission in unit.submissions])
        frame = batch_frame(
            batch_id,
            by_group.values(),
            timeout_seconds=timeout,
            step=kind.step,
            purpose=kind.purpose,
            reward_keys=() if len(kind.keys) == len(self._all_keys) else kind.keys,
            traceparent=traceparent(trace_id(self._session_scope, kind.step), batch_id),
        )
        return SentBatch(
            batch_id=batch_id,
            frame=frame,
            kind=kind,
            timeout_seconds=timeout,
            units=units,
            completions=count,
            breaks=max(unit.breaks for unit in units),
        )
