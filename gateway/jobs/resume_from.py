"""Checks what a new job asks to start from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.jobs.job import checkpoint_id
from gateway.jobs.ports import CheckpointCatalog
from plaudit.errors import FieldViolation
from plaudit.types.jobs import InitCheckpoint
from plaudit.types.validation import shown

_STEP: Final = re.compile(r"[0-9]{1,10}")
_STEPS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Start:
    """The checkpoint that a job starts from, and what makes its policy of the base model."""

    checkpoint_id: str
    chain: tuple[InitCheckpoint, ...]


@dataclass(frozen=True, slots=True)
class CheckedStart:
    """What came of checking resume_from; `start` is None where something is wrong, or missing."""

    start: Start | None = None
    violations: Sequence[FieldViolation] = ()
    missing: Sequence[FieldViolation] = ()


async def check_start(
    resume_from: str, base_model: str | None, checkpoints: CheckpointCatalog
) -> CheckedStart:
    """Finds what `resume_from` names: a job, for its newest checkpoint, or "{job}@{step}".

    `base_model` is the new job's, None where it is wrong by itself.
    """
    job_id, at, step_text = resume_from.partition("@")
    if at and not _STEP.fullmatch(step_text):
        return _wrong(
            f"{shown(resume_from)} is refused: after @ stands the step of a checkpoint; for example "
            f'"{checkpoint_id(job_id or "job_01", 120)}", or only the job for its newest one'
        )
    source = await checkpoints.find(job_id)
    if source is None:
        return CheckedStart(
            missing=[
                FieldViolation(
                    "resume_from", f"there is no job {shown(job_id)}; list the jobs to see their ids"
                )
            ]
        )
    steps = sorted(source.checkpoints)
    if not steps:
        way_out = (
            f"it is {source.status}, and comes to none by itself: name another job"
            if source.status.is_terminal
            else "wait for its first one"
        )
        return _wrong(
            f"job {job_id} has no checkpoint that could be started from; {way_out}, or leave resume_from out "
            "to start from base_model"
        )
    step = int(step_text) if at else steps[-1]
    if step not in source.checkpoints:
        there = ", ".join(str(s) for s in steps[-_STEPS_SHOWN:])
        return _wrong(
            f"job {job_id} has no checkpoint of step {step}; it has {there}: take one of these, or only the "
            "job for its newest one"
        )
    if base_model is not None and base_model != source.base_model:
        return _wrong(
            f"the checkpoints of job {job_id} belong to base_model {shown(source.base_model)}, and this job "
            f"asks for {shown(base_model)}; give the same base_model, or leave resume_from out"
        )
    return CheckedStart(Start(checkpoint_id(job_id, step), source.chain(step)))


def _wrong(message: str) -> CheckedStart:
    return CheckedStart(violations=[FieldViolation("resume_from", message)])
