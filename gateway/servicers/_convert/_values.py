"""Values that several resources have: times, errors of jobs, JSON texts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from gateway.jobs.job import JobError
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import training_job_pb2
from plaudit.rpc import time_of
from plaudit.types.validation import parse_json_object

NANOS: Final = 1_000_000_000


def time_to_proto(time: datetime | None) -> Timestamp | None:
    """A time; None, a field that is not set, stays None."""
    if time is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp


def time_from_proto(stamp: Timestamp, field: str, violations: list[FieldViolation]) -> datetime | None:
    """A time that was sent in `field`; what is wrong with it is added to `violations`."""
    time = time_of(stamp)
    if time is None:
        violations.append(
            FieldViolation(
                field,
                f"{stamp.seconds} s and {stamp.nanos} ns are no time; send seconds since 1970 of years 1 to "
                f"9999, and nanos from 0 to {NANOS - 1:,}",
            )
        )
    return time


def error_to_proto(error: JobError | None) -> training_job_pb2.JobError | None:
    """Why a job, or a rescore, failed."""
    return None if error is None else training_job_pb2.JobError(code=error.code, message=error.message)


def parsed_object(text: str, field: str, violations: list[FieldViolation]) -> dict[str, Any]:
    """The JSON object in `text`; what is wrong with it is added to `violations`."""
    try:
        return parse_json_object(text, field)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
        return {}
