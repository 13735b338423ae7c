"""Between the messages of plaudit.reward.v1 and what the engine and the rewards know."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

from google.protobuf import duration_pb2

from plaudit.errors import FieldViolation
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import MAX_MESSAGE_BYTES
from plaudit.types.scoring import (
    PROTOCOL_VERSION,
    ChatMessage,
    Completion,
    Examples,
    FailureCode,
    FinishReason,
    JsonValue,
    NotApplicable,
    Outcome,
    Prompt,
    Purpose,
    Scored,
)
from reward_service._reward import Reward, Scope
from reward_service._session import Selection, SessionRequest
from reward_service._stream import Bundle, Done, Draining, Frame, Opened, Rejected, WindowChanged
from reward_service._work import Batch, Group, Results
from reward_service.limits import ServerLimits

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_PURPOSES: Final = {
    pb.Batch.PURPOSE_TRAIN: Purpose.TRAIN,
    pb.Batch.PURPOSE_EVAL: Purpose.EVAL,
    pb.Batch.PURPOSE_PREFLIGHT: Purpose.PREFLIGHT,
}
_FINISH_REASONS: Final = {
    pb.Completion.FINISH_REASON_STOP: FinishReason.STOP,
    pb.Completion.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
_CODES: Final = {
    FailureCode.INVALID: pb.Failure.CODE_INVALID,
    FailureCode.TIMEOUT: pb.Failure.CODE_TIMEOUT,
    FailureCode.CANCELLED: pb.Failure.CODE_CANCELLED,
    FailureCode.UNAVAILABLE: pb.Failure.CODE_UNAVAILABLE,
    FailureCode.CONFLICT: pb.Failure.CODE_CONFLICT,
    FailureCode.LIMIT_EXCEEDED: pb.Failure.CODE_LIMIT_EXCEEDED,
    FailureCode.INTERNAL: pb.Failure.CODE_INTERNAL,
    FailureCode.EXHAUSTED: pb.Failure.CODE_EXHAUSTED,
}
_SCOPES: Final = {Scope.COMPLETION: pb.Reward.SCOPE_COMPLETION, Scope.GROUP: pb.Reward.SCOPE_GROUP}


def selections_of(rewards: Sequence[pb.RewardSelection]) -> tuple[Selection, ...]:
    """Selected rewards."""
    return tuple(Selection(reward.key, reward.name, reward.config_json) for reward in rewards)


def session_request_of(message: pb.SessionOpen) -> SessionRequest:
    """What a client opens."""
    return SessionRequest(
        message.session_id,
        selections_of(message.rewards),
        tuple(message.pending_batch_ids),
        message.job_id,
        message.reads_bundled_done,
        message.reads_plain_scores,
    )


def batch_of(message: pb.Batch) -> Batch:
    """A batch. What is told of it elsewhere is cleared in `message`, and what tells no batch from another."""
    unreadable: list[FieldViolation] = []
    groups = [_group_of(group, f"groups[{index}]", unreadable) for index, group in enumerate(message.groups)]
    timeout = _seconds(message.timeout) if message.HasField("timeout") else None
    step, purpose = message.step, _PURPOSES.get(message.purpose)
    traced = _TRACEPARENT.fullmatch(message.traceparent)
    for field in ("timeout", "step", "traceparent", "purpose"):
        message.ClearField(field)
    # The completions are hashed as they were read: to encode the texts again takes longer than all else here.
    for group in message.groups:
        group.ClearField("completions")
    rest = message.SerializeToString(deterministic=True)
    return Batch(
        batch_id=message.batch_id,
        groups=groups,
        reward_keys=tuple(message.reward_keys),
        timeout=timeout,
        step=step,
        purpose=purpose,
        trace_id=traced[1] if traced is not None else "",
        fingerprint=hash((rest, *(tuple(group.completions) for group in groups))),
        unreadable=unreadable,
    )


def frame_to_proto(frame: Frame) -> pb.ScoreResponse:
    """A frame to the client."""
    match frame:
        case Bundle():
            response = pb.ScoreResponse()
            for results in frame.results:
                if frame.allows_plain and all(map(_is_plain, results.outcomes)):
                    _add_plain_scores(response.results.plain_scores.add(), results)
                else:
                    _add_results(response.results.results.add, results)
            response.results.done.extend(map(_done_to_proto, frame.done))
            return response
        case Done():
            return pb.ScoreResponse(done=_done_to_proto(frame))
        case Rejected():
            failure = pb.Failure(code=_CODES[frame.failure.code], message=frame.failure.message)
            if frame.failure.retry_delay is not None:
                failure.retry_delay.CopyFrom(_duration(frame.failure.retry_delay))
            return pb.ScoreResponse(rejected=pb.BatchRejected(batch_id=frame.batch_id, failure=failure))
        case Opened():
            return pb.ScoreResponse(
                opened=pb.SessionOpened(
                    max_in_flight_completions=frame.window, retained_batch_ids=frame.retained_batch_ids
                )
            )
        case WindowChanged():
            return pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=frame.window))
        case Draining():
            return pb.ScoreResponse(draining=pb.Draining(grace=_duration(frame.grace)))
        case _:
            assert_never(frame)


def results_to_proto(results: Sequence[Results]) -> pb.ScoreOnceResponse:
    """The answer to a single call."""
    response = pb.ScoreOnceResponse()
    for of_one_reward in results:
        _add_results(response.results.add, of_one_reward)
    return response


def needs_to_proto(required_columns: Mapping[str, Sequence[str]]) -> pb.ScoreOnceResponse:
    """The answer to a single call without completions."""
    return pb.ScoreOnceResponse(
        needs=[pb.RewardNeeds(key=key, required_columns=columns) for key, columns in required_columns.items()]
    )


def prompts_of(groups: Sequence[pb.PromptGroup], unreadable: list[FieldViolation]) -> list[Prompt]:
    """The prompts of groups; what cannot be read of them is added to `unreadable`."""
    return [_group_of(group, f"groups[{index}]", unreadable).prompt for index, group in enumerate(groups)]


def examples_to_proto(examples: Mapping[str, Examples]) -> pb.MakeExamplesResponse:
    """Examples by group id."""
    return pb.MakeExamplesResponse(
        examples=[
            pb.GroupExamples(group_id=group_id, good_texts=written.good, bad_texts=written.bad)
            for group_id, written in examples.items()
        ]
    )


def server_info(
    name: str, version: str, rewards: Sequence[Reward], limits: ServerLimits
) -> pb.GetServerInfoResponse:
    """The description of a server."""
    capabilities = pb.Capabilities(cancellation=True)
    if limits.result_retention_seconds > 0:
        capabilities.result_retention.CopyFrom(_duration(limits.result_retention_seconds))
    return pb.GetServerInfoResponse(
        server_name=name,
        server_version=version,
        min_protocol_version=PROTOCOL_VERSION,
        max_protocol_version=PROTOCOL_VERSION,
        rewards=[
            pb.Reward(
                name=reward.name,
                description=reward.description,
                scope=_SCOPES[reward.scope],
                min_value=reward.min_value,
                max_value=reward.max_value,
                deterministic=reward.deterministic,
                required_columns=reward.required_columns,
                config_schema_json=reward.config.schema_json,
            )
            for reward in rewards
        ],
        limits=pb.Limits(
            max_batch_completions=limits.max_batch_completions, max_frame_bytes=MAX_MESSAGE_BYTES
        ),
        capabilities=capabilities,
    )


def _done_to_proto(done: Done) -> pb.BatchDone:
    return pb.BatchDone(
        batch_id=done.batch_id,
        scored_count=done.scored_count,
        not_applicable_count=done.not_applicable_count,
        failed_count=done.failed_count,
    )


def _group_of(message: pb.PromptGroup, path: str, unreadable: list[FieldViolation]) -> Group:
    columns: dict[str, JsonValue] = {}
    for name, value in message.columns.items():
        try:
            columns[name] = _column_value(value)
        except (ValueError, RecursionError) as error:
            unreadable.append(FieldViolation(f"{path}.columns[{name!r}]", f"cannot be read: {error}"))
    prompt = Prompt(
        message.group_id,
        tuple([ChatMessage(turn.role, turn.content) for turn in message.prompt]),
        columns,
        message.prompt_text,
    )
    unknown = FinishReason.UNKNOWN
    return Group(
        prompt,
        [
            Completion(
                c.completion_id,
                c.text,
                c.token_count,
                _FINISH_REASONS.get(c.finish_reason, unknown),
                c.prefill,
                c.raw_text,
            )
            for c in message.completions
        ],
    )


def _column_value(value: pb.ColumnValue) -> JsonValue:
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            if not math.isfinite(value.double_value):
                raise ValueError(f"{value.double_value} is not finite")
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "json_value":
            parsed: JsonValue = json.loads(value.json_value, parse_constant=_refuse_constant)
            return parsed
        case None:
            return None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _add_results(add: Callable[[], pb.Result], results: Results) -> None:
    # Copied for each, what they have in common costs a quarter less than set for each.
    common = pb.Result(batch_id=results.batch_id, reward_key=results.reward_key)
    common.scoring_duration.CopyFrom(_duration(results.seconds))
    for completion_id, outcome in zip(results.completion_ids, results.outcomes, strict=True):
        message = add()
        message.CopyFrom(common)
        message.completion_id = completion_id
        if isinstance(outcome, Scored):
            score = message.score
            score.value = outcome.value
            if outcome.metrics:
                score.metrics.update(outcome.metrics)
            if outcome.explanation:
                score.explanation = outcome.explanation
        elif isinstance(outcome, NotApplicable):
            message.not_applicable.reason = outcome.reason
        else:
            message.failure.code = _CODES[outcome.code]
            message.failure.message = outcome.message
            if outcome.retry_delay is not None:
                message.failure.retry_delay.CopyFrom(_duration(outcome.retry_delay))


def _is_plain(outcome: Outcome) -> bool:
    return isinstance(outcome, Scored) and not (outcome.metrics or outcome.explanation)


def _add_plain_scores(message: pb.PlainScores, results: Results) -> None:
    message.batch_id = results.batch_id
    message.reward_key = results.reward_key
    message.completion_ids.extend(results.completion_ids)
    message.values.extend([outcome.value for outcome in results.outcomes if isinstance(outcome, Scored)])
    message.scoring_duration.CopyFrom(_duration(results.seconds))


def _seconds(duration: duration_pb2.Duration) -> float:
    return duration.seconds + duration.nanos * 1e-9


def _duration(seconds: float) -> duration_pb2.Duration:
    whole = int(seconds)
    return duration_pb2.Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))
