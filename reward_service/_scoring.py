"""From a batch to calls of the rewards' functions, and from their answers to outcomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from structlog.contextvars import bind_contextvars

from plaudit.errors import FieldViolation, InvalidArgumentError, PlauditError
from plaudit.types.scoring import Failed, FailureCode, Outcome
from reward_service._item import Item
from reward_service._lanes import Lane
from reward_service._reward import Reward, Scope
from reward_service._session import Selection
from reward_service._work import MAX_ID_LENGTH, Batch, Group, Report

MAX_SELECTIONS = 64


class Catalog:
    """The rewards of a server, by name, each with its lane."""

    def __init__(self, rewards: Sequence[Reward], *, check_timeout: float) -> None:
        """`check_timeout`: seconds that a reward may take to check a config.

        Raises InvalidArgumentError where there is no reward, or two have one name.
        """
        self._check_timeout = check_timeout
        wrong = [] if rewards else [FieldViolation("rewards", "is empty; a server has at least one reward")]
        self.rewards: dict[str, Reward] = {}
        for index, reward in enumerate(rewards):
            if not isinstance(reward, Reward):
                wrong.append(
                    FieldViolation(
                        f"rewards[{index}]", "is no reward; put the decorator @reward on the function"
                    )
                )
            elif reward.name in self.rewards:
                wrong.append(
                    FieldViolation(f"rewards[{index}].name", f'"{reward.name}" is taken by another reward')
                )
            else:
                self.rewards[reward.name] = reward
        if wrong:
            raise InvalidArgumentError(wrong)
        self._lanes = {name: Lane(reward.concurrency) for name, reward in self.rewards.items()}

    async def select(self, selections: Sequence[Selection], job_id: str, *, known: bool) -> SelectedRewards:
        """The selected rewards, configured and, but where the selections are `known`, checked.

        InvalidArgumentError names every wrong field of `rewards`. UnavailableError: a config that is
        well-formed cannot be checked now.
        """
        wrong: list[FieldViolation] = []
        read: dict[str, tuple[Reward, Any]] = {}
        fields: dict[str, str] = {}
        first_use: dict[str, int] = {}
        if not selections:
            wrong.append(FieldViolation("rewards", "is empty; select at least one reward"))
        if len(selections) > MAX_SELECTIONS:
            found = f"selects {len(selections)} rewards; a session has at most {MAX_SELECTIONS}"
            raise InvalidArgumentError.of("rewards", found)
        for index, selection in enumerate(selections):
            field = f"rewards[{index}]"
            key = selection.key
            if not 0 < len(key) <= MAX_ID_LENGTH:
                wrong.append(FieldViolation(f"{field}.key", f"must have 1 to {MAX_ID_LENGTH} characters"))
            elif first_use.setdefault(key, index) != index:
                wrong.append(
                    FieldViolation(f"{field}.key", f'"{key}" is the key of rewards[{first_use[key]}] too')
                )
            reward = self.rewards.get(selection.name)
            if reward is None:
                known_names = ", ".join(self.rewards)
                wrong.append(
                    FieldViolation(
                        f"{field}.name", f'"{selection.name}" is not on offer; there are {known_names}'
                    )
                )
                continue
            try:
                config = reward.config.read(selection.config_json, f"{field}.config")
            except InvalidArgumentError as error:
                wrong.extend(error.violations)
                continue
            read[key] = reward, config
            fields[key] = f"{field}.config"
        if not known:
            await self._check(read, fields, wrong)
        if wrong:
            raise InvalidArgumentError(wrong)
        # After the check, which may be what finds out which columns a config needs.
        selected = {
            key: _Selected(reward, self._lanes[reward.name], config, reward.columns_of(config))
            for key, (reward, config) in read.items()
        }
        return SelectedRewards(selected, job_id)

    async def _check(
        self, read: Mapping[str, tuple[Reward, Any]], fields: Mapping[str, str], wrong: list[FieldViolation]
    ) -> None:
        checks = [
            reward.check(config, fields[key], self._check_timeout)
            for key, (reward, config) in read.items()
            if reward.checks_config
        ]
        unchecked: list[PlauditError] = []
        for found in await asyncio.gather(*checks, return_exceptions=True):
            if isinstance(found, PlauditError):
                unchecked.append(found)
            elif isinstance(found, BaseException):
                raise found
            else:
                wrong.extend(found)
        # What is wrong is told first: coming again would not mend it.
        if unchecked and not wrong:
            raise unchecked[0]


@dataclass(frozen=True, slots=True)
class _Selected:
    reward: Reward
    lane: Lane
    config: Any
    columns: tuple[str, ...]


class SelectedRewards:
    """The rewards of one session, or of one single call; also whose turn it is in their lanes."""

    def __init__(self, selected: dict[str, _Selected], job_id: str) -> None:
        self._selected = selected
        self._job_id = job_id
        self.keys = tuple(selected)

    @property
    def required_columns(self) -> Mapping[str, tuple[str, ...]]:
        """By key, the dataset columns that the reward needs under its config."""
        return {key: one.columns for key, one in self._selected.items()}

    def start(self, batch: Batch, keys: Sequence[str], report: Report) -> Callable[[], None]:
        """Scores `batch` for each of `keys`; `report` is given index, outcomes and seconds as they come.

        The index of a result is that of its key times the number of completions, plus that of the
        completion. Returns what stops the work; after that, nothing is reported.
        """
        calls: list[_Call] = []
        offset = 0
        for key in keys:
            selected = self._selected[key]
            for indexes, items in self._portions(batch, selected, offset, report):
                calls.append(_Call(selected, batch, indexes, items, report))
            offset += batch.completion_count
        for call in calls:
            selected_lane = call.selected.lane
            selected_lane.submit(self, call)

        def stop() -> None:
            for call in calls:
                call.selected.lane.withdraw(self, call)

        return stop

    def _portions(
        self, batch: Batch, selected: _Selected, offset: int, report: Report
    ) -> list[tuple[list[int], list[Item[Any]]]]:
        """Items of one reward as its function takes them: one by one, in chunks, or by group."""
        reward = selected.reward
        by_group = reward.scope is Scope.GROUP
        size = reward.chunk_size if reward.takes_list else 1
        indexes: list[int] = []
        items: list[Item[Any]] = []
        portions: list[tuple[list[int], list[Item[Any]]]] = []
        index = offset
        timeout = batch.timeout
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        for group in batch.groups:
            count = len(group.completions)
            missing = [column for column in selected.columns if column not in group.prompt.columns]
            if missing:
                failed = _lacks(missing, group)
                report(range(index, index + count), [failed] * count, 0.0)
                index += count
                continue
            prompt, config = group.prompt, selected.config
            step, purpose, job_id = batch.step, batch.purpose, self._job_id
            items += [Item(prompt, c, config, step, purpose, job_id, deadline) for c in group.completions]
            indexes.extend(range(index, index + count))
            index += count
            if by_group:
                portions.append((indexes, items))
                indexes, items = [], []
        if not by_group:
            portions = [(indexes[i : i + size], items[i : i + size]) for i in range(0, len(items), size)]
        return portions


def _lacks(missing: list[str], group: Group) -> Failed:
    have = ", ".join(group.prompt.columns) or "none"
    return Failed(
        FailureCode.INVALID,
        f"the row lacks column {', '.join(missing)}, which the reward needs; it has {have}",
    )


class _Call:
    __slots__ = ("_batch", "_indexes", "_items", "_report", "selected")

    def __init__(
        self,
        selected: _Selected,
        batch: Batch,
        indexes: list[int],
        items: list[Item[Any]],
        report: Report,
    ) -> None:
        self.selected = selected
        self._batch = batch
        self._indexes = indexes
        self._items = items
        self._report = report

    async def run(self) -> None:
        # In a task of its own, so that this holds for the reward's own lines and for no others.
        bind_contextvars(batch_id=self._batch.batch_id, step=self._batch.step, trace_id=self._batch.trace_id)
        started = time.perf_counter()
        try:
            outcomes: Sequence[Outcome] = await self.selected.reward.score(self._items)
        except asyncio.CancelledError:
            return  # withdrawn: whoever did it answers for the items
        self._report(self._indexes, outcomes, time.perf_counter() - started)
