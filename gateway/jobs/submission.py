"""Checks a new job against what there is: its dataset, its reward servers, and what they offer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from gateway.jobs.ports import CheckpointCatalog, DatasetCatalog, RewardServerCatalog
from gateway.jobs.resume_from import CheckedStart, Start, check_start
from gateway.jobs.reward_checks import EVAL_DATASET, ReadDataset, check_rewards, text_in
from gateway.jobs.trainer_questions import AskedJob, JobCheck, JobChecks
from gateway.store.datasets import StoredDataset
from plaudit.errors import FieldViolation, InvalidArgumentError, NotFoundError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.methods import HYPERPARAMETERS
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.validation import check_job_spec, shown


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that may be queued; the ids are what the names in the spec stand for now.

    `start` is what resume_from stands for now, None where the base model is the start; `eval_dataset_id` is
    None where the job is not evaluated. `check` is what trainers say of it.
    """

    spec: TrainingJobSpec
    dataset_id: str
    reward_server_ids: tuple[str, ...]
    start: Start | None = None
    eval_dataset_id: str | None = None
    check: JobCheck = field(default_factory=JobCheck)


async def check_submission(
    data: object,
    datasets: DatasetCatalog,
    servers: RewardServerCatalog,
    checkpoints: CheckpointCatalog,
    job_checks: JobChecks,
    known_violations: Sequence[FieldViolation] = (),
) -> Submission:
    """Checks JSON-like data in full, however much of it is wrong; `known_violations` was found already.

    Raises InvalidArgumentError with everything that is wrong, or NotFoundError where nothing is but that the
    dataset, a reward server or the job of resume_from is not known. A reward server that does not answer now
    is taken as it is.
    """
    spec, found = check_job_spec(data)
    violations = [*known_violations, *found]
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
    if "resume_from" not in wrong and (source := text_in(request, "resume_from")) is not None:
        base_model = text_in(request, "base_model") if "base_model" not in wrong else None
        start = await check_start(source, base_model, checkpoints)
        violations.extend(start.violations)
        missing.extend(start.missing)
    read = [ReadDataset(dataset)] if dataset is not None else []
    if eval_dataset is not None and (dataset is None or eval_dataset.id != dataset.id):
        read.append(ReadDataset(eval_dataset, of_evaluations=True))
    checked = await check_rewards(request.get("rewards"), violations, read, servers)
    violations.extend(checked.violations)
    missing.extend(checked.missing)
    check = await _asked_of_trainers(request, violations, dataset, eval_dataset, job_checks)
    violations.extend(check.violations)

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
        check,
    )


async def _asked_of_trainers(
    request: Mapping[str, Any],
    violations: Sequence[FieldViolation],
    dataset: StoredDataset | None,
    eval_dataset: StoredDataset | None,
    job_checks: JobChecks,
) -> JobCheck:
    """What trainers say of the job as far as it can be read; `violations` is what is wrong with it."""
    wrong = {violation.field for violation in violations}
    model, method = text_in(request, "base_model"), request.get("method", "grpo")
    given = request.get("hyperparameters", {})
    if model is None or method not in HYPERPARAMETERS or wrong & {"base_model", "method", "hyperparameters"}:
        return JobCheck()
    if not isinstance(given, Mapping):
        return JobCheck()
    right = {name: value for name, value in given.items() if f"hyperparameters.{name}" not in wrong}
    try:
        hyperparameters = HYPERPARAMETERS[method].model_validate_json(json.dumps(right))
    except (ValidationError, TypeError, ValueError):
        # What is wrong with them was found to be so at another place.
        return JobCheck()
    check = await job_checks.check_job(AskedJob(model, method, hyperparameters, dataset, eval_dataset))
    if len(right) == len(given):
        return check
    # With others, all but the model itself may be judged otherwise.
    return JobCheck(violations=tuple(v for v in check.violations if v.field == "base_model"))


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
    asked = text_in(given, name) if isinstance(given, Mapping) and field not in wrong else None
    dataset = await datasets.find(asked) if asked else None
    if asked and dataset is None:
        missing.append(
            FieldViolation(
                field,
                f"there is no dataset {shown(asked)}; upload it, or list the datasets to see their names",
            )
        )
    return dataset


def not_found(missing: Sequence[FieldViolation]) -> NotFoundError:
    """The error where nothing is wrong but that these are not known."""
    return NotFoundError("\n".join(f"{m.field}: {m.message}" for m in missing), field=missing[0].field)


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
