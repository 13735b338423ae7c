"""Resolves a job into what a trainer is handed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.jobs.job import JobError
from gateway.store import Session
from gateway.store.jobs import JobRecord
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import DatasetReference, RewardBinding, RewardTarget, RunSpec
from plaudit.types.statuses import ErrorCode


@dataclass(frozen=True, slots=True)
class Unresolved(Exception):
    """Something that the job needs is gone."""

    error: JobError


async def resolve(session: Session, record: JobRecord) -> RunSpec:
    """The job's configuration with its files and addresses as they are now. Raises Unresolved."""
    spec, h = record.job.spec, record.job.spec.hyperparameters
    dataset = await _dataset(session, record.dataset_id, spec.dataset_id)
    eval_dataset = None
    if record.eval_dataset_id is not None and isinstance(h, GrpoHyperparameters):
        eval_dataset = await _dataset(session, record.eval_dataset_id, h.eval_dataset_id)
    targets = await reward_targets(session, spec.rewards, await session.jobs.reward_server_ids(record.key))
    return RunSpec(
        base_model=spec.base_model,
        output_name=spec.output_name,
        method=spec.method,
        hyperparameters=spec.hyperparameters,
        dataset=dataset,
        rewards=targets,
        # What is imitated is not scored.
        preflight=spec.preflight if spec.method == "grpo" else "off",
        eval_dataset=eval_dataset,
        init_checkpoints=await session.init_checkpoints.of(record.key),
    )


async def _dataset(session: Session, dataset_id: str, name: str | None) -> DatasetReference:
    """Where the dataset lies, which the spec calls `name`. Raises Unresolved."""
    dataset = await session.datasets.find(dataset_id)
    if dataset is None:
        message = f"dataset {name} was deleted; upload it again, and resume the job"
        raise Unresolved(JobError(ErrorCode.DATASET_ERROR, message))
    return DatasetReference(uri=dataset.uri, sha256=dataset.sha256, row_count=dataset.row_count)


async def reward_targets(
    session: Session, bindings: Sequence[RewardBinding], server_ids: Sequence[str]
) -> tuple[RewardTarget, ...]:
    """The rewards with the addresses that their servers have now. `server_ids` are what the names in the
    bindings stood for. Raises Unresolved.
    """
    targets = []
    for binding, server_id in zip(bindings, server_ids, strict=True):
        # A server that was deleted and registered again under its name has another id.
        server = await session.reward_servers.find(server_id) or await session.reward_servers.find(
            binding.server
        )
        if server is None:
            message = f"reward server {binding.server} was deleted; register it again, and resume the job"
            raise Unresolved(JobError(ErrorCode.CONFIG_ERROR, message))
        targets.append(RewardTarget(binding=binding, addresses=server.addresses, access=server.access))
    return tuple(targets)
