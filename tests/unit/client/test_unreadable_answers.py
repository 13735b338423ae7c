"""What a gateway answers that makes no sense is an error that says so, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from plaudit.client import Client, _convert
from plaudit.errors import InternalError
from plaudit.gateway.v1 import dataset_service_pb2 as datasets
from plaudit.gateway.v1 import model_service_pb2 as models
from plaudit.gateway.v1 import rescore_service_pb2 as rescores
from plaudit.gateway.v1 import reward_server_service_pb2 as servers
from plaudit.gateway.v1 import token_service_pb2 as tokens
from plaudit.gateway.v1 import token_service_pb2_grpc
from plaudit.gateway.v1 import trainer_registry_service_pb2 as trainers
from plaudit.gateway.v1 import training_job_pb2 as jobs
from plaudit.gateway.v1 import training_job_service_pb2 as events

NO_TIME = Timestamp(seconds=2**62)
DEEP = "[" * 200_000
SPEC = jobs.TrainingJobSpec(base_model="m", dataset_id="d", output_name="o", method="grpo")
QUEUED = jobs.TRAINING_JOB_STATUS_QUEUED


@pytest.mark.parametrize(
    ("read", "answer", "told"),
    [
        (_convert.job_from_proto, jobs.TrainingJob(spec=SPEC, status=QUEUED, created_at=NO_TIME), str(2**62)),
        (_convert.job_from_proto, jobs.TrainingJob(spec=SPEC, status=99), "99"),
        (_convert.job_from_proto, jobs.TrainingJob(), "TrainingJob"),
        (_convert.spec_from_proto, jobs.TrainingJobSpec(hyperparameters_json="{"), "TrainingJobSpec"),
        (_convert.spec_from_proto, jobs.TrainingJobSpec(hyperparameters_json=DEEP), "recursion"),
        (_convert.binding_from_proto, jobs.RewardBinding(config_json="NO"), "RewardBinding"),
        (_convert.event_from_proto, events.TrainingJobEvent(event_time=NO_TIME, bookmark={}), str(2**62)),
        (_convert.event_from_proto, events.TrainingJobEvent(status_changed={"status": 77}), "77"),
        (
            _convert.completion_from_proto,
            events.ScoredCompletion(outcomes=[events.RewardOutcome(scored_at=NO_TIME)]),
            str(2**62),
        ),
        (_convert.dataset_from_proto, datasets.Dataset(created_at=NO_TIME), str(2**62)),
        (_convert.dataset_row_from_proto, datasets.DatasetRow(prompt_json="{"), "DatasetRow"),
        (_convert.model_from_proto, models.Model(created_at=NO_TIME), "Model"),
        (_convert.checkpoint_from_proto, models.Checkpoint(created_at=NO_TIME), str(2**62)),
        (_convert.rescore_from_proto, rescores.Rescore(created_at=NO_TIME), "Rescore"),
        (
            _convert.reward_server_from_proto,
            servers.RewardServer(replicas=[servers.RewardServerReplica(state=55)]),
            "55",
        ),
        (_convert.token_from_proto, tokens.Token(role=tokens.ROLE_ADMIN, expires_at=NO_TIME), str(2**62)),
        (_convert.token_from_proto, tokens.Token(role=44), "44 is no role"),
        (_convert.caller_from_proto, tokens.Caller(), "0 is no role"),
        (_convert.audit_entry_from_proto, tokens.AuditEntry(role=1, time=NO_TIME), str(2**62)),
        (_convert.trainer_from_proto, trainers.RegisteredTrainer(state=33), "33"),
    ],
)
def test_an_answer_without_sense_is_one_error(read: Callable[[Any], Any], answer: Any, told: str) -> None:
    with pytest.raises(InternalError) as refused:
        read(answer)
    assert refused.value.reason == "ANSWER_UNREADABLE"
    assert told in refused.value.message
    assert len(refused.value.message) < 500


def test_a_length_of_time_beyond_all_years_is_only_long() -> None:
    told = jobs.RewardBinding(name="a", timeout=Duration(seconds=2**62))
    assert _convert.binding_from_proto(told)["timeout_seconds"] > 1e9


class EndlessTokens(token_service_pb2_grpc.TokenServiceServicer):
    """Every page of its log is the same one, and names itself as the next."""

    def ListAuditEntries(self, request: Any, context: Any) -> tokens.ListAuditEntriesResponse:
        return tokens.ListAuditEntriesResponse(next_page_token="again")


def test_a_list_without_an_end_ends() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    token_service_pb2_grpc.add_TokenServiceServicer_to_server(EndlessTokens(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with (
            Client(f"127.0.0.1:{port}") as client,
            pytest.raises(InternalError, match="over and over") as refused,
        ):
            list(client.tokens.audit())
        assert refused.value.reason == "ANSWER_UNREADABLE"
    finally:
        server.stop(None)
