"""Rescores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plaudit.client import models
from plaudit.client._convert._carrying import Uncarriable, as_list, carry, carry_binding
from plaudit.client._convert._events import completion_from_proto, outcome_from_proto
from plaudit.client._convert._jobs import binding_from_proto
from plaudit.client._convert._reading import reads_answer
from plaudit.client._convert._values import error_from_proto, time_from_proto
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import rescore_service_pb2 as pb
from plaudit.types.jobs import RewardBinding
from plaudit.types.rescores import RescoreStatus
from plaudit.types.validation import check_rescore_spec, json_fault

_STATUS_PREFIX = "RESCORE_STATUS_"


def rescore_request(
    job_id: str, rewards: Sequence[Mapping[str, Any]], from_step: int, to_step: int, request_id: str
) -> pb.CreateRescoreRequest:
    """The request of a rescore, unchecked where the message can carry it; else refused in the same words."""
    try:
        bindings = [carry_binding(reward) for reward in as_list("rewards", rewards)]
    except UnicodeEncodeError:
        raise InvalidArgumentError.of("rewards", str(json_fault(list(rewards)))) from None
    except Uncarriable:
        data = {"rewards": rewards, "from_step": from_step, "to_step": to_step}
        violations = check_rescore_spec(data)[1] or [
            FieldViolation("rewards", "holds what JSON does not have; write it as text, or leave it out")
        ]
        raise InvalidArgumentError(violations) from None
    return carry(
        pb.CreateRescoreRequest,
        {
            "job_id": job_id,
            "rewards": bindings,
            "from_step": from_step,
            "to_step": to_step,
            "request_id": request_id,
        },
        required=("job_id",),
    )


@reads_answer
def rescore_from_proto(message: pb.Rescore) -> models.Rescore:
    """A rescore."""
    return models.Rescore(
        id=message.id,
        job_id=message.job_id,
        rewards=tuple(
            RewardBinding.model_construct(None, **binding_from_proto(binding)) for binding in message.rewards
        ),
        from_step=message.from_step,
        to_step=message.to_step,
        status=RescoreStatus(pb.RescoreStatus.Name(message.status).removeprefix(_STATUS_PREFIX).lower()),
        status_detail=message.status_detail,
        error=error_from_proto(message.error) if message.HasField("error") else None,
        done_count=message.done_count,
        total_count=message.total_count,
        summary=_summary(message.summary),
        created_at=time_from_proto(message, "created_at"),
        started_at=time_from_proto(message, "started_at"),
        finished_at=time_from_proto(message, "finished_at"),
    )


@reads_answer
def rescore_result_from_proto(message: pb.RescoreResult) -> models.RescoreResult:
    """A completion with its old and new scores."""
    return models.RescoreResult(
        completion=completion_from_proto(message.completion),
        new_reward=message.new_reward if message.HasField("new_reward") else None,
        new_outcomes=tuple(map(outcome_from_proto, message.new_outcomes)),
    )


def _summary(message: pb.RescoreSummary) -> models.RescoreSummary:
    return models.RescoreSummary(
        compared_count=message.compared_count,
        old_mean=message.old_mean if message.HasField("old_mean") else None,
        new_mean=message.new_mean if message.HasField("new_mean") else None,
        correlation=message.correlation if message.HasField("correlation") else None,
        rank_agreement=message.rank_agreement if message.HasField("rank_agreement") else None,
        ordered_pair_count=message.ordered_pair_count,
        failed_count=message.failed_count,
        not_applicable_count=message.not_applicable_count,
        rewards=tuple(
            models.RescoredReward(
                name=reward.name,
                scored_count=reward.scored_count,
                not_applicable_count=reward.not_applicable_count,
                failed_count=reward.failed_count,
                mean=reward.mean if reward.HasField("mean") else None,
                failure=reward.failure,
            )
            for reward in message.rewards
        ),
    )
