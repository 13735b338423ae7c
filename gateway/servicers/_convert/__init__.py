"""Protobuf to the domain and back: the only place of the gateway that knows both. One module a resource."""

from gateway.servicers._convert._bindings import binding_to_proto, bindings_to_data
from gateway.servicers._convert._datasets import (
    dataset_row_to_proto,
    dataset_to_proto,
    source_to_data,
    token_statistics_to_proto,
)
from gateway.servicers._convert._events import completion_to_proto, event_to_proto, series_to_proto
from gateway.servicers._convert._jobs import (
    job_request_to_data,
    job_to_proto,
    method_from_proto,
    overrides_to_data,
    spec_to_data,
    status_to_proto,
    statuses_from_proto,
)
from gateway.servicers._convert._models import checkpoint_to_proto, model_to_proto
from gateway.servicers._convert._rescores import rescore_result_to_proto, rescore_to_data, rescore_to_proto
from gateway.servicers._convert._rewards import (
    registration_from_proto,
    reward_function_to_proto,
    reward_server_to_proto,
)
from gateway.servicers._convert._values import time_from_proto

__all__ = [
    "binding_to_proto",
    "bindings_to_data",
    "checkpoint_to_proto",
    "completion_to_proto",
    "dataset_row_to_proto",
    "dataset_to_proto",
    "event_to_proto",
    "job_request_to_data",
    "job_to_proto",
    "method_from_proto",
    "model_to_proto",
    "overrides_to_data",
    "registration_from_proto",
    "rescore_result_to_proto",
    "rescore_to_data",
    "rescore_to_proto",
    "reward_function_to_proto",
    "reward_server_to_proto",
    "series_to_proto",
    "source_to_data",
    "spec_to_data",
    "status_to_proto",
    "statuses_from_proto",
    "time_from_proto",
    "token_statistics_to_proto",
]
