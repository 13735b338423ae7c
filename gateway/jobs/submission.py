"""Checks a new job against what there is: its dataset, its reward servers, and what they offer."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.jobs.ports import (
    AskedReward,
    CheckpointCatalog,
    DatasetCatalog,
    OfferedReward,
    RewardServerCatalog,
    ServerDescription,
)
from gateway.jobs.resume_from import CheckedStart, Start, check_start
from gateway.rewards.config_schema import config_violations
from gateway.store.datasets import StoredDataset
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import FieldViolation, InvalidArgumentError, NotFoundError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import RewardBinding, TrainingJobSpec
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.validation import check_job_spec, shown

PROMPT_COLUMN: Final = "prompt"
EVAL_DATASET: Final = "hyperparameters.eval_dataset_id"
_NAMES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that may be queued; the ids are what the names in the spec stand for now.

    `start` is what resume_from stands for now, None where the base model is the start; `eval_dataset_id` is
    None where the job is not evaluated.
    """

    spec: TrainingJobSpec
    dataset_id: str
    reward_server_ids: tuple[str, ...]
    start: Start | None = None
    eval_dataset_id: str | None = None


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


async def check_submission(
    data: object,
    datasets: DatasetCatalog,
    servers: RewardServerCatalog,
    checkpoints: CheckpointCatalog,
) -> Submission:
    """Checks JSON-like data in full, however much of it is wrong.

    Raises InvalidArgumentError with everything that is wrong, or NotFoundError where nothing is but that the
    dataset, a reward server or the job of resume_from is not known. A reward server that does not answer now
    is taken as it is.
    """
    spec, violations = check_job_spec(data)
    wrong = {violation.field for violation in violations}
    request: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    missing: list[FieldViolation] = []

    dataset = await _find_dataset(request, "dataset_id", wrong, datasets, missing)
    if dataset is not None:
        violations.extend(_wrong_method(request, wrong, dataset))
        violations.extend(_too_small(request, wrong, dataset))
    eval_dataset = None
    if request.get("method", "grpo") == "grpo":
        eval_dataset = await _find_dataset(request, EVAL_DATASET, wrong, datasets, missing)
    if eval_dataset is not None:
        violations.extend(_wrong_method(request, wrong, eval_dataset, EVAL_DATASET))
    start = CheckedStart()
    if "resume_from" not in wrong and (source := _text(request, "resume_from")) is not None:
        base_model = _text(request, "base_model") if "base_model" not in wrong else None
        start = await check_start(source, base_model, checkpoints)
        violations.extend(start.violations)
        missing.extend(start.missing)
    read = [ReadDataset(dataset)] if dataset is not None else []
    if eval_dataset is not None and (dataset is None or eval_dataset.id != dataset.id):
        read.append(ReadDataset(eval_dataset, of_evaluations=True))
    checked = await check_rewards(request.get("rewards"), violations, read, servers)
    violations.extend(checked.violations)
    missing.extend(checked.missing)

    if violations:
        raise InvalidArgumentError([*violations, *missing])
    if missing:
        raise not_found(missing)
    assert spec is not None
    assert dataset is not None
    return Submission(
        spec,
        dataset.id,
        checked.server_ids(spec.rewards),
        start.start,
        eval_dataset.id if eval_dataset is not None else None,
    )


async def _find_dataset(
    request: Mapping[str, Any],
    field: str,
    wrong: set[str],
    datasets: DatasetCatalog,
    missing: list[FieldViolation],
) -> StoredDataset | None:
    """The dataset that a field of the request names; one that is not there is noted as missing."""
    holder, _, name = field.rpartition(".")
    given = request.get(holder, {}) if holder else request
    asked = _text(given, name) if isinstance(given, Mapping) and field not in wrong else None
    dataset = await datasets.find(asked) if asked else None
    if asked and dataset is None:
        missing.append(
            FieldViolation(
                field,
                f"there is no dataset {shown(asked)}; upload it, or list the datasets to see their names",
            )
        )
    return dataset


@dataclass(frozen=True, slots=True)
class CheckedRewards:
    """What came of checking a request's rewards. `servers` are those found, by the names that it uses."""

    servers: Mapping[str, RegisteredRewardServer | None]
    violations: Sequence[FieldViolation]
    missing: Sequence[FieldViolation]

    def server_ids(self, bindings: Sequence[RewardBinding]) -> tuple[str, ...]:
        """Ids of the servers of these rewards, in their order."""
        return tuple(server.id for b in bindings if (server := self.servers[b.server]) is not None)


def not_found(missing: Sequence[FieldViolation]) -> NotFoundError:
    """The error where nothing is wrong but that these are not known."""
    return NotFoundError("\n".join(f"{m.field}: {m.message}" for m in missing), field=missing[0].field)


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
    for reward in rewards:
        server = found.get(reward.server) if reward.server is not None else None
        if server is not None:
            violations.extend(_wrong_reward(reward, server, described[server.id], datasets))
    so_far = [*known_violations, *violations]
    violations.extend(await _told_by_servers(servers, found, described, rewards, so_far, datasets))
    return CheckedRewards(found, violations, missing)


async def _describe(
    servers: RewardServerCatalog, found: Mapping[str, RegisteredRewardServer | None]
) -> Mapping[str, ServerDescription]:
    distinct = {server.id: server for server in found.values() if server is not None}
    descriptions = await asyncio.gather(*(servers.describe(server) for server in distinct.values()))
    return dict(zip(distinct, descriptions, strict=True))


async def _told_by_servers(
    servers: RewardServerCatalog,
    found: Mapping[str, RegisteredRewardServer | None],
    described: Mapping[str, ServerDescription],
    rewards: Sequence[_Reward],
    violations: Sequence[FieldViolation],
    datasets: Sequence[ReadDataset],
) -> list[FieldViolation]:
    """What the servers themselves say of configurations in which nothing is wrong so far."""
    wrong = tuple(violation.field for violation in violations)
    asked: dict[str, list[AskedReward]] = {}
    for reward in rewards:
        server = found.get(reward.server) if reward.server is not None else None
        if server is None or reward.name is None or reward.config is None:
            continue
        if described[server.id].reachable and not any(_is_below(field, reward.field) for field in wrong):
            asked.setdefault(server.id, []).append(AskedReward(reward.field, reward.name, reward.config))
    by_id = {server.id: server for server in found.values() if server is not None}
    answers = await asyncio.gather(
        *(servers.check_configs(by_id[server_id], of_server) for server_id, of_server in asked.items())
    )
    told = [violation for answer in answers for violation in answer.refused]
    told.extend(
        FieldViolation(f"{reward.field}.reward", _lacked(column, reward.name, dataset))
        for answer, of_server in zip(answers, asked.values(), strict=True)
        for reward in of_server
        for column in answer.required_columns.get(reward.field, ())
        for dataset in datasets
        if not _has(dataset, column)
    )
    return told


def _is_below(field: str, parent: str) -> bool:
    return field == parent or field.startswith(f"{parent}.")


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


def _wrong_method(
    request: Mapping[str, Any], wrong: set[str], dataset: StoredDataset, field: str = "dataset_id"
) -> Iterator[FieldViolation]:
    method = request.get("method", "grpo")
    if "method" not in wrong and method not in dataset.methods:
        what = "a prompt to answer" if method == "grpo" else "an answer to imitate"
        use = "trained on" if field == "dataset_id" else "used"
        yield FieldViolation(
            field,
            f"{shown(dataset.name)} cannot be {use} by {method}: not every row has {what}; it serves "
            f"{', '.join(dataset.methods)}",
        )


def _too_small(
    request: Mapping[str, Any], wrong: set[str], dataset: StoredDataset
) -> Iterator[FieldViolation]:
    given = request.get("hyperparameters", {})
    if request.get("method", "grpo") == "sft":
        yield from _too_few_examples(given, wrong, dataset)
        return
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


def _too_few_examples(given: object, wrong: set[str], dataset: StoredDataset) -> Iterator[FieldViolation]:
    field = "hyperparameters.global_batch_size"
    if not isinstance(given, Mapping) or field in wrong:
        return
    size = given.get("global_batch_size", SftHyperparameters().global_batch_size)
    if dataset.row_count < size:
        yield FieldViolation(
            field,
            f"{size} takes {size} examples a step, and dataset {shown(dataset.name)} has "
            f"{dataset.row_count}; {dataset.row_count} would work",
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
    for dataset in () if wrong_config else datasets:
        yield from _missing_columns(reward, offer, reward.config, dataset)


def _missing_columns(
    reward: _Reward, offer: OfferedReward, config: Mapping[str, Any], dataset: ReadDataset
) -> Iterator[FieldViolation]:
    choices = _column_choices(offer)
    for column in offer.required_columns:
        choice = choices.get(column)
        needed = config.get(choice, column) if choice else column
        if not isinstance(needed, str) or _has(dataset, needed):
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


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None
