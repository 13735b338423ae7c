"""Values that several resources have: times, and why something failed."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from plaudit.client import models
from plaudit.gateway.v1 import training_job_pb2


def time_from_proto(message: Message, field: str) -> datetime | None:
    """The time in a field of a message, None where it is not set."""
    return utc(getattr(message, field)) if message.HasField(field) else None


def utc(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)


def error_from_proto(message: training_job_pb2.JobError) -> models.JobError:
    """Why a job, or a rescore, failed."""
    return models.JobError(message.code, message.message)
