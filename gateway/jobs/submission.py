"""Checks a new job against what there is: its dataset, its reward servers, and what they offer."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.jobs.ports import DatasetCatalog, OfferedReward, RewardServerCatalog, ServerDescription
from gateway.rewards.config_schema import config_violations
from gateway.store.datasets import StoredDataset
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import FieldViolation, InvalidArgumentError, NotFoundError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.validation import check_job_spec, shown

PROMPT_COLUMN: Final = "prompt"
_NAMES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that may be queued; the ids are what the names in the spec stand for now."""

    spec: TrainingJobSpec
    dataset_id: str
    reward_server_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Reward:
    """A reward of the request, as far as it is well-formed."""

    field: str
    server: str | None
    name: str | None
    config: Mapping[str, Any] | None


async def check_submission(
    data: object, datasets: DatasetCatalog, servers: RewardServerCatalog
) -> Submission:
    """Checks JSON-like data in full, however much of it is wrong.

    Raises InvalidArgumentError with everything that is wrong, or NotFoundError where nothing is but that the
    dataset or a reward server is not known. A reward server that does not answer now is taken as it is.
    """
    spec, violations = check_job_spec(data)
    wrong = {violation.field for violation in violations}
    request: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    missing: list[FieldViolation] = []

    dataset_name = _text(request, "dataset_id") if "dataset_id" not in wrong else None
    dataset = await datasets.find(dataset_name) if dataset_name else None
    if dataset_name and dataset is None:
        missing.append(
            FieldViolation(
                "dataset_id",
                f"there is no dataset {shown(dataset_name)}; upload it, or list the datasets to see their "
                "names",
            )
        )
    rewards = list(_well_formed(request.get("rewards"), wrong))
    names = list(dict.fromkeys(reward.server for reward in rewards if reward.server is not None))
    found = dict(zip(names, await asyncio.gather(*(servers.find(name) for name in names)), strict=True))
    missing.extend(
        FieldViolation(
            f"{reward.field}.server",
            f"there is no reward server {shown(reward.server)}; register it, or list the reward servers to "
            "see their names",
        )
        for reward in rewards
        if reward.server is not None and found[reward.server] is None
    )
    described = await _describe(servers, found)
    if dataset is not None:
        violations.extend(_too_small(request, wrong, dataset))
    for reward in rewards:
        server = found.get(reward.server) if reward.server is not None else None
        if server is not None and described[server.id].reachable:
            violations.extend(_wrong_reward(reward, server, described[server.id], dataset))

    if violations:
        raise InvalidArgumentError([*violations, *missing])
    if missing:
        raise NotFoundError("\n".join(f"{m.field}: {m.message}" for m in missing), field=missing[0].field)
    assert spec is not None
    assert dataset is not None
    server_ids = tuple(server.id for b in spec.rewards if (server := found[b.server]) is not None)
    return Submission(spec, dataset.id, server_ids)


async def _describe(
    servers: RewardServerCatalog, found: Mapping[str, RegisteredRewardServer | None]
) -> Mapping[str, ServerDescription]:
    distinct = {server.id: server for server in found.values() if server is not None}
    descriptions = await asyncio.gather(*(servers.describe(server) for server in distinct.values()))
    return dict(zip(distinct, descriptions, strict=True))


def _well_formed(rewards: object, wrong: set[str]) -> Iterator[_Reward]:
    if not isinstance(rewards, list | tuple):
        return
    for index, reward in enumerate(rewards):
        if not isinstance(reward, Mapping):
            continue
        field = f"rewards[{index}]"
        config = reward.get("config", {})
        yield _Reward(
            field,
            _text(reward, "server") if f"{field}.server" not in wrong else None,
            _text(reward, "reward") if f"{field}.reward" not in wrong else None,
            config if isinstance(config, Mapping) else None,
        )


def _too_small(
    request: Mapping[str, Any], wrong: set[str], dataset: StoredDataset
) -> Iterator[FieldViolation]:
    given = request.get("hyperparameters", {})
    sizes = ("global_batch_size", "rollouts_per_prompt")
    if not isinstance(given, Mapping) or any(f"hyperparameters.{name}" in wrong for name in sizes):
        return
    sizes_given = {name: given[name] for name in sizes if name in given}
    hyperparameters = GrpoHyperparameters.model_construct(None, **sizes_given)
    prompts, group = hyperparameters.prompts_per_step, hyperparameters.rollouts_per_prompt
    if dataset.row_count < prompts:
        yield FieldViolation(
            "hyperparameters.global_batch_size",
            f"{hyperparameters.global_batch_size} takes {prompts} prompts a step ({group} completions each), "
            f"and dataset {shown(dataset.name)} has {dataset.row_count}; {dataset.row_count * group} would "
            "work",
        )


def _wrong_reward(
    reward: _Reward,
    server: RegisteredRewardServer,
    description: ServerDescription,
    dataset: StoredDataset | None,
) -> Iterator[FieldViolation]:
    if reward.name is None:
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
    if reward.config is None:
        return
    wrong_config = config_violations(offer.config_schema, reward.config, f"{reward.field}.config")
    yield from wrong_config
    if dataset is not None and not wrong_config:
        yield from _missing_columns(reward, offer, reward.config, dataset)


def _missing_columns(
    reward: _Reward, offer: OfferedReward, config: Mapping[str, Any], dataset: StoredDataset
) -> Iterator[FieldViolation]:
    choices = _column_choices(offer)
    for column in offer.required_columns:
        choice = choices.get(column)
        needed = config.get(choice, column) if choice else column
        if needed in dataset.columns or needed == PROMPT_COLUMN or not isinstance(needed, str):
            continue
        field = f"{reward.field}.config.{choice}" if choice in config else f"{reward.field}.reward"
        way_out = f"; name another in config.{choice}" if choice and choice not in config else ""
        yield FieldViolation(
            field,
            f"{shown(needed)}: {offer.name} needs this column, and dataset {shown(dataset.name)} lacks it; "
            f"it has {_names(dataset.columns, near=needed)}{way_out}",
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


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None
