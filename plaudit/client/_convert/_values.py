"""Values that several resources have: times, and why something failed."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from plaudit.client import models
from plaudit.gateway.v1 import training_job_pb2
from plaudit.rpc import time_of


def time_from_proto(message: Message, field: str) -> datetime | None:
    """The time in a field of a message, None where it is not set."""
    return utc(getattr(message, field)) if message.HasField(field) else None


def utc(stamp: Timestamp) -> datetime:
    """The time. Raises ValueError where the gateway sent none."""
    time = time_of(stamp)
    if time is None:
        raise ValueError(f"{stamp.seconds} s and {stamp.nanos} ns since 1970 are no time")
    return time


def error_from_proto(message: training_job_pb2.JobError) -> models.JobError:
    """Why a job, or a rescore, failed."""
    return models.JobError(message.code, message.message)
