"""Rescores."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gateway.rescoring.rescore import Rescore, RescoreResult, RescoreSummary
from gateway.servicers._convert._bindings import binding_to_proto, bindings_to_data
from gateway.servicers._convert._events import completion_to_proto, outcome_to_proto
from gateway.servicers._convert._values import error_to_proto, time_to_proto
from plaudit.errors import FieldViolation
from plaudit.gateway.v1 import rescore_service_pb2


def rescore_to_data(
    request: rescore_service_pb2.CreateRescoreRequest, violations: list[FieldViolation]
) -> dict[str, Any]:
    """What a rescore asks for as JSON-like data, unchecked; rewards are left out where there are none. JSON
    texts in it that are none, and lengths of time, are added to `violations`.
    """
    data: dict[str, Any] = {"from_step": request.from_step, "to_step": request.to_step}
    if request.rewards:
        data["rewards"] = bindings_to_data(request.rewards, violations)
    return data


def rescore_to_proto(rescore: Rescore) -> rescore_service_pb2.Rescore:
    """A rescore."""
    return rescore_service_pb2.Rescore(
        id=rescore.id,
        job_id=rescore.job_id,
        rewards=[binding_to_proto(binding) for binding in rescore.spec.rewards],
        from_step=rescore.spec.from_step,
        to_step=rescore.spec.to_step,
        status=rescore_service_pb2.RescoreStatus.Value(f"RESCORE_STATUS_{rescore.status.name}"),
        status_detail=rescore.status_detail,
        error=error_to_proto(rescore.error),
        done_count=rescore.done_count,
        total_count=rescore.total_count,
        summary=_summary_to_proto(rescore.summary),
        created_at=time_to_proto(rescore.created_at),
        started_at=time_to_proto(rescore.started_at),
        finished_at=time_to_proto(rescore.finished_at),
    )


def rescore_result_to_proto(result: RescoreResult) -> rescore_service_pb2.RescoreResult:
    """A completion with its old and new scores."""
    return rescore_service_pb2.RescoreResult(
        completion=completion_to_proto(result.completion),
        new_reward=result.new_reward,
        new_outcomes=[outcome_to_proto(outcome) for outcome in result.new_outcomes],
    )


def _summary_to_proto(summary: RescoreSummary) -> rescore_service_pb2.RescoreSummary:
    fields = asdict(summary)
    rewards = fields.pop("rewards")
    return rescore_service_pb2.RescoreSummary(
        **fields, rewards=[rescore_service_pb2.RescoredReward(**reward) for reward in rewards]
    )
