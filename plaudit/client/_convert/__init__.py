"""Protobuf to the SDK's models and back: the only place of the SDK that knows both. One module a resource."""

from plaudit.client._convert._carrying import (
    BESIDE_SPEC,
    carry,
    job_request_to_proto,
    json_text,
    spec_to_proto,
)
from plaudit.client._convert._datasets import (
    dataset_from_proto,
    dataset_row_from_proto,
    token_statistics_from_proto,
    tried_source_from_proto,
)
from plaudit.client._convert._events import completion_from_proto, event_from_proto, series_from_proto
from plaudit.client._convert._jobs import (
    binding_from_proto,
    job_from_proto,
    spec_from_proto,
    status_to_proto,
    statuses_of,
)
from plaudit.client._convert._models import checkpoint_from_proto, model_from_proto
from plaudit.client._convert._remainders import refused_by_both, remainder_of_job
from plaudit.client._convert._rescores import rescore_from_proto, rescore_request, rescore_result_from_proto
from plaudit.client._convert._rewards import reward_function_from_proto, reward_server_from_proto
from plaudit.client._convert._tokens import (
    audit_entry_from_proto,
    caller_from_proto,
    role_to_proto,
    token_from_proto,
)
from plaudit.client._convert._trainers import trainer_from_proto

__all__ = [
    "BESIDE_SPEC",
    "audit_entry_from_proto",
    "binding_from_proto",
    "caller_from_proto",
    "carry",
    "checkpoint_from_proto",
    "completion_from_proto",
    "dataset_from_proto",
    "dataset_row_from_proto",
    "event_from_proto",
    "job_from_proto",
    "job_request_to_proto",
    "json_text",
    "model_from_proto",
    "refused_by_both",
    "remainder_of_job",
    "rescore_from_proto",
    "rescore_request",
    "rescore_result_from_proto",
    "reward_function_from_proto",
    "reward_server_from_proto",
    "role_to_proto",
    "series_from_proto",
    "spec_from_proto",
    "spec_to_proto",
    "status_to_proto",
    "statuses_of",
    "token_from_proto",
    "token_statistics_from_proto",
    "trainer_from_proto",
    "tried_source_from_proto",
]
