"""The edge to plaudit.reward.v1: the vocabulary becomes messages, and results become outcomes."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import duration_seconds
from plaudit.types.jobs import RewardBinding
from plaudit.types.scoring import (
    Completion,
    Failed,
    FailureCode,
    FinishReason,
    JsonValue,
    NotApplicable,
    Prompt,
    Purpose,
    Scored,
)

_INT64 = range(-(2**63), 2**63)
MAX_EXPLANATION: Final = 4096
"""Characters of a text that are kept."""

_MAX_METRICS: Final = 64
_MAX_METRIC_NAME: Final = 128
# Tags, lengths, token count and finish reason: more than they can take.
_COMPLETION_FRAMING: Final = 48
_NO_METRICS: Final[Mapping[str, float]] = {}

_FINISH_REASONS: Final = {
    FinishReason.UNKNOWN: pb.Completion.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: pb.Completion.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.Completion.FINISH_REASON_LENGTH,
}
_PURPOSES: Final = {
    Purpose.TRAIN: pb.Batch.PURPOSE_TRAIN,
    Purpose.EVAL: pb.Batch.PURPOSE_EVAL,
    Purpose.PREFLIGHT: pb.Batch.PURPOSE_PREFLIGHT,
}
_FAILURE_CODES: Final = {
    pb.Failure.CODE_UNSPECIFIED: FailureCode.INTERNAL,
    pb.Failure.CODE_INVALID: FailureCode.INVALID,
    pb.Failure.CODE_TIMEOUT: FailureCode.TIMEOUT,
    pb.Failure.CODE_CANCELLED: FailureCode.CANCELLED,
    pb.Failure.CODE_UNAVAILABLE: FailureCode.UNAVAILABLE,
    pb.Failure.CODE_CONFLICT: FailureCode.CONFLICT,
    pb.Failure.CODE_LIMIT_EXCEEDED: FailureCode.LIMIT_EXCEEDED,
    pb.Failure.CODE_INTERNAL: FailureCode.INTERNAL,
    pb.Failure.CODE_EXHAUSTED: FailureCode.EXHAUSTED,
}


def valid_text(text: str) -> str:
    """The text as valid Unicode: surrogate pairs joined, lone surrogates replaced by U+FFFD.

    A protobuf string refuses a lone surrogate, and the whole message with it.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def valid_completion(completion: Completion) -> tuple[Completion, int]:
    """The completion with valid text, the same object where it was valid, and a bound of its encoded size."""
    completion_id, text, _, _, prefill, raw_text = completion
    size = _COMPLETION_FRAMING + len(completion_id)
    if text.isascii() and prefill.isascii() and raw_text.isascii():
        return completion, size + len(text) + len(prefill) + len(raw_text)
    text, prefill, raw_text = valid_text(text), valid_text(prefill), valid_text(raw_text)
    size += len(text.encode()) + len(prefill.encode()) + len(raw_text.encode())
    return completion._replace(text=text, prefill=prefill, raw_text=raw_text), size


def prompt_message(prompt: Prompt) -> pb.PromptGroup:
    """A prompt as it is sent, without completions."""
    # Fields that are set one by one cost half of what they cost as arguments.
    message = pb.PromptGroup()
    message.group_id = prompt.group_id
    message.prompt_text = valid_text(prompt.text)
    for turn in prompt.messages:
        told = message.prompt.add()
        told.role = valid_text(turn.role)
        told.content = valid_text(turn.content)
    for name, value in prompt.columns.items():
        _set_column(message.columns[valid_text(name)], value)
    return message


def _set_column(message: pb.ColumnValue, value: JsonValue) -> None:
    if value is None:
        return
    if isinstance(value, bool):  # before int, of which it is one
        message.bool_value = value
    elif isinstance(value, str):
        message.string_value = valid_text(value)
    elif isinstance(value, int) and value in _INT64:
        message.int_value = value
    elif isinstance(value, float) and math.isfinite(value):
        message.double_value = value
    else:
        message.json_value = json.dumps(value)


def selection_message(binding: RewardBinding) -> pb.RewardSelection:
    """A reward of the job as a session asks for it; its name in the job is the key."""
    return pb.RewardSelection(
        key=binding.name,
        name=binding.reward,
        config_json=json.dumps(binding.config) if binding.config else "",
    )


def batch_frame(
    batch_id: str,
    work: Iterable[tuple[pb.PromptGroup, Iterable[Completion]]],
    *,
    timeout_seconds: float,
    step: int,
    purpose: Purpose,
    reward_keys: Sequence[str],
    traceparent: str,
) -> pb.ScoreRequest:
    """A batch, ready to send. `work` holds prompts without completions, and the valid completions of each."""
    frame = pb.ScoreRequest()
    batch = frame.batch
    batch.batch_id = batch_id
    batch.timeout.FromMicroseconds(max(1, round(timeout_seconds * 1e6)))
    batch.step = step
    batch.purpose = _PURPOSES[purpose]
    batch.reward_keys.extend(reward_keys)
    batch.traceparent = traceparent
    for prompt, completions in work:
        batch.groups.append(prompt)
        add = batch.groups[-1].completions.add
        for completion_id, text, token_count, finish_reason, prefill, raw_text in completions:
            message = add()
            message.completion_id = completion_id
            message.text = text
            message.token_count = token_count
            message.finish_reason = _FINISH_REASONS[finish_reason]
            if prefill:
                message.prefill = prefill
            if raw_text:
                message.raw_text = raw_text
    return frame


def failed(failure: pb.Failure) -> Failed:
    """A failure as the domain knows it."""
    return Failed(
        code=_FAILURE_CODES.get(failure.code, FailureCode.INTERNAL),
        message=failure.message[:MAX_EXPLANATION],
        retry_delay=duration_seconds(failure.retry_delay) if failure.HasField("retry_delay") else None,
    )


def not_applicable(message: pb.NotApplicable) -> NotApplicable:
    """As the domain knows it."""
    return NotApplicable(message.reason[:MAX_EXPLANATION])


def scored(score: pb.Score) -> Scored:
    """A score as the domain knows it, its value unchecked, without parts that are not finite or too many."""
    explanation = score.explanation
    if score.metrics:
        parts = itertools.islice(score.metrics.items(), _MAX_METRICS)
        metrics = {name[:_MAX_METRIC_NAME]: part for name, part in parts if math.isfinite(part)}
        return Scored(score.value, metrics, explanation[:MAX_EXPLANATION])
    if explanation:
        return Scored(score.value, _NO_METRICS, explanation[:MAX_EXPLANATION])
    return plain_score(score.value)


@lru_cache(maxsize=1024)
def plain_score(value: float) -> Scored:
    """A value alone; one object for each: most rewards give few of them, to many completions."""
    return Scored(value, _NO_METRICS)
