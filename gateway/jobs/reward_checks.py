"""Checks the rewards of a request against their servers: what these offer, and what they say of configs."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.jobs.partial_configs import PartialConfig, examples_in, place_of, without
from gateway.jobs.ports import (
    AskedReward,
    CheckedConfigs,
    OfferedReward,
    RewardServerCatalog,
    ServerDescription,
)
from gateway.rewards.config_schema import config_violations
from gateway.store.datasets import StoredDataset
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import FieldViolation
from plaudit.types.jobs import RewardBinding
from plaudit.types.validation import shown

PROMPT_COLUMN: Final = "prompt"
EVAL_DATASET: Final = "hyperparameters.eval_dataset_id"
_NAMES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class ReadDataset:
    """A dataset whose columns rewards read; `of_evaluations`: it holds the held-out prompts."""

    dataset: StoredDataset
    of_evaluations: bool = False


@dataclass(frozen=True, slots=True)
class _Reward:
    """A reward of the request, as far as it is well-formed."""

    field: str
    server: str | None
    name: str | None
    config: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class CheckedRewards:
    """What came of checking a request's rewards. `servers` are those found, by the names that it uses."""

    servers: Mapping[str, RegisteredRewardServer | None]
    violations: Sequence[FieldViolation]
    missing: Sequence[FieldViolation]

    def server_ids(self, bindings: Sequence[RewardBinding]) -> tuple[str, ...]:
        """Ids of the servers of these rewards, in their order."""
        return tuple(server.id for b in bindings if (server := self.servers[b.server]) is not None)


async def check_rewards(
    asked: object,
    known_violations: Sequence[FieldViolation],
    datasets: Sequence[ReadDataset],
    servers: RewardServerCatalog,
) -> CheckedRewards:
    """Checks the `rewards` of a request, however much of them is wrong, against their servers.

    `known_violations` is what was found already. `datasets` are those whose columns the rewards read, as far
    as they are known.
    """
    wrong = {violation.field for violation in known_violations}
    violations: list[FieldViolation] = []
    rewards = list(_well_formed(asked, wrong))
    names = list(dict.fromkeys(reward.server for reward in rewards if reward.server is not None))
    found = dict(zip(names, await asyncio.gather(*(servers.find(name) for name in names)), strict=True))
    missing = [
        FieldViolation(
            f"{reward.field}.server",
            f"there is no reward server {shown(reward.server)}; register it, or list the reward servers to "
            "see their names",
        )
        for reward in rewards
        if reward.server is not None and found[reward.server] is None
    ]
    described = await _describe(servers, found)
    asked_of: dict[str, list[AskedReward]] = {}
    for reward in rewards:
        server = found.get(reward.server) if reward.server is not None else None
        if server is None:
            continue
        violations.extend(_wrong_reward(reward, server, described[server.id], datasets))
        if reward.name is None or reward.config is None or not described[server.id].can_run(reward.name):
            continue
        # One that is wrong as a whole, such as one that is too large, is not sent.
        if all(v.field != f"{reward.field}.config" for v in (*known_violations, *violations)):
            asked_of.setdefault(server.id, []).append(AskedReward(reward.field, reward.name, reward.config))
    by_id = {server.id: server for server in found.values() if server is not None}
    so_far = [*known_violations, *violations]
    told = await asyncio.gather(
        *(
            _told_by(servers, by_id[server_id], described[server_id], of_server, so_far, datasets)
            for server_id, of_server in asked_of.items()
        )
    )
    violations.extend(violation for by_server in told for violation in by_server)
    return CheckedRewards(found, violations, missing)


async def _describe(
    servers: RewardServerCatalog, found: Mapping[str, RegisteredRewardServer | None]
) -> Mapping[str, ServerDescription]:
    distinct = {server.id: server for server in found.values() if server is not None}
    descriptions = await asyncio.gather(*(servers.describe(server) for server in distinct.values()))
    return dict(zip(distinct, descriptions, strict=True))


async def _told_by(
    servers: RewardServerCatalog,
    server: RegisteredRewardServer,
    description: ServerDescription,
    rewards: Sequence[AskedReward],
    known: Sequence[FieldViolation],
    datasets: Sequence[ReadDataset],
) -> list[FieldViolation]:
    """What a server itself says of configurations, beside what is known.

    A server may look no further where it finds something wrong, or where the schema did: it is asked once
    more, of the configurations without that. What it then says of what is left holds for the whole.
    """
    examples = {offer.name: examples_in(offer.config_schema) for offer in description.rewards}
    told: list[FieldViolation] = []
    answer = await servers.check_configs(server, rewards)
    _add(told, answer.refused, known)
    told.extend(_lacking(answer, rewards, datasets, [*known, *told]))
    if not answer.refused and not any(_wrong_places(reward, known) for reward in rewards):
        return told
    partial = {
        reward.field: left
        for reward in rewards
        if (left := without(reward.config, _wrong_places(reward, [*known, *told]), examples[reward.name]))
    }
    again = [
        replace(reward, config=partial[reward.field].config) for reward in rewards if reward.field in partial
    ]
    # One by one: what a reward needs is told only where nothing is wrong.
    answers = await asyncio.gather(*(servers.check_configs(server, [reward]) for reward in again))
    for reward, answer in zip(again, answers, strict=True):
        left = partial[reward.field]
        _add(told, (v for v in answer.refused if _still_holds(v, reward.field, left)), known)
        if not left.lacks_name_of_column():
            told.extend(_lacking(answer, [reward], datasets, [*known, *told]))
    return told


def _add(
    told: list[FieldViolation], found: Iterable[FieldViolation], known: Sequence[FieldViolation]
) -> None:
    fields = {violation.field for violation in (*known, *told)}
    told.extend(violation for violation in found if violation.field not in fields)


def _wrong_places(reward: AskedReward, violations: Sequence[FieldViolation]) -> list[tuple[str | int, ...]]:
    """Where the configuration of a reward is wrong."""
    places = (place_of(violation.field, f"{reward.field}.config") for violation in violations)
    return [place for place in places if place is not None]


def _still_holds(violation: FieldViolation, field: str, left: PartialConfig) -> bool:
    """Whether what was said of a part of the configuration of the reward at `field` is true of the whole."""
    place = place_of(violation.field, f"{field}.config")
    return violation.field == f"{field}.reward" if place is None else left.is_whole_at(place)


def _lacking(
    answer: CheckedConfigs,
    rewards: Sequence[AskedReward],
    datasets: Sequence[ReadDataset],
    known: Sequence[FieldViolation],
) -> list[FieldViolation]:
    """Columns that only the server knows to be needed, and that a dataset lacks."""
    lacked = [
        FieldViolation(f"{reward.field}.reward", _lacked(column, reward.name, dataset))
        for reward in rewards
        for column in answer.required_columns.get(reward.field, ())
        for dataset in datasets
        if not _has(dataset, column)
    ]
    return [
        violation
        for violation in lacked
        if not any(
            other.message.startswith(violation.message)
            and other.field.startswith(violation.field.removesuffix("reward"))
            for other in known
        )
    ]


def _well_formed(rewards: object, wrong: set[str]) -> Iterator[_Reward]:
    if not isinstance(rewards, list | tuple):
        return
    for index, reward in enumerate(rewards):
        if not isinstance(reward, Mapping):
            continue
        field = f"rewards[{index}]"
        config = reward.get("config", {}) if f"{field}.config" not in wrong else None
        yield _Reward(
            field,
            text_in(reward, "server") if f"{field}.server" not in wrong else None,
            text_in(reward, "reward") if f"{field}.reward" not in wrong else None,
            config if isinstance(config, Mapping) else None,
        )


def _wrong_reward(
    reward: _Reward,
    server: RegisteredRewardServer,
    description: ServerDescription,
    datasets: Sequence[ReadDataset],
) -> Iterator[FieldViolation]:
    if description.incompatible:
        yield FieldViolation(
            f"{reward.field}.server",
            f"reward server {server.name} can not be used: {description.incompatible}",
        )
    if reward.name is None or not description.reachable:
        return
    offered = {offer.name: offer for offer in description.rewards}
    offer = offered.get(reward.name)
    if offer is None:
        yield FieldViolation(
            f"{reward.field}.reward",
            f"reward server {server.name} has no reward {shown(reward.name)}; it has "
            f"{_names(offered, near=reward.name)}",
        )
        return
    if offer.problem:
        yield FieldViolation(f"{reward.field}.reward", f"{shown(reward.name)}: {offer.problem}")
    if reward.config is None:
        return
    wrong_config = config_violations(offer.config_schema, reward.config, f"{reward.field}.config")
    yield from wrong_config
    wrong = {violation.field for violation in wrong_config}
    for dataset in datasets:
        yield from _missing_columns(reward, offer, reward.config, wrong, dataset)


def _missing_columns(
    reward: _Reward, offer: OfferedReward, config: Mapping[str, Any], wrong: set[str], dataset: ReadDataset
) -> Iterator[FieldViolation]:
    choices = _column_choices(offer)
    for column in offer.required_columns:
        choice = choices.get(column)
        needed = config.get(choice, column) if choice else column
        # Which column it is cannot be said where that itself is wrong.
        if not isinstance(needed, str) or _has(dataset, needed) or f"{reward.field}.config.{choice}" in wrong:
            continue
        field = f"{reward.field}.config.{choice}" if choice in config else f"{reward.field}.reward"
        way_out = f"; name another in config.{choice}" if choice and choice not in config else ""
        yield FieldViolation(field, _lacked(needed, offer.name, dataset) + way_out)


def _has(read: ReadDataset, column: str) -> bool:
    return column in read.dataset.columns or column == PROMPT_COLUMN


def _lacked(column: str, reward: str, read: ReadDataset) -> str:
    what = f"held-out dataset ({EVAL_DATASET})" if read.of_evaluations else "dataset"
    return (
        f"{shown(column)}: {reward} needs this column, and {what} {shown(read.dataset.name)} lacks it; it "
        f"has {_names(read.dataset.columns, near=column)}"
    )


def _column_choices(offer: OfferedReward) -> Mapping[str, str]:
    """Required columns that the configuration can rename, with the property that does.

    It is one that is called `column`, or ends in `_column`, and has the required column as its default.
    """
    properties = (offer.config_schema or {}).get("properties", {})
    return {
        schema["default"]: name
        for name, schema in (properties.items() if isinstance(properties, Mapping) else ())
        if (name == "column" or name.endswith("_column"))
        and isinstance(schema, Mapping)
        and schema.get("default") in offer.required_columns
    }


def _names(names: Iterable[str], *, near: str) -> str:
    """The names, nearest first, as many as one reads."""
    known: Sequence[str] = list(names)
    if not known:
        return "none"
    close = difflib.get_close_matches(near, known, n=3)
    ordered = [*close, *(name for name in known if name not in close)]
    more = len(ordered) - _NAMES_SHOWN
    return ", ".join(ordered[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def text_in(data: Mapping[str, Any], name: str) -> str | None:
    """A text of JSON-like data that is not empty, or None."""
    value = data.get(name)
    return value if isinstance(value, str) and value else None
