"""Makes the completions that are sent."""

from __future__ import annotations

import itertools
import json
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf import duration_pb2

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._settings import Row

TEXTS: Final = (
    "72",
    "<think>6 times 12 is 72.</think><answer>72</answer>",
    "The answer is \\boxed{72}.",
    "It is 71.",
    "<answer>72</answer>",
    "I do not know.",
    "6 times 12 is 72, for 6 times 10 is 60 and 6 times 2 is 12.",
    "<think>60 and 12</think>\n<answer>71</answer>",
)
"""Completions of the suite's own: right, wrong, well formed and not."""

_DEFAULT_ANSWER: Final = 72
_INT64: Final = range(-(2**63), 2**63)


class Work:
    """Makes groups and batches for one reward, out of rows that are used in turn.

    `most` is the server's limit of completions in a batch.
    """

    def __init__(self, reward: pb.Reward, rows: Sequence[Row], limits: pb.Limits, timeout: float) -> None:
        columns = {"answer": _DEFAULT_ANSWER} | dict.fromkeys(reward.required_columns, _DEFAULT_ANSWER)
        self.rows = rows or [Row((("user", "What is 6 times 12?"),), columns)]
        self.most = limits.max_batch_completions or 1_000_000
        self._timeout = timeout
        self._turn = itertools.cycle(self.rows)
        self._numbers = itertools.count()

    def group(
        self,
        texts: Iterable[str],
        *,
        ids: Sequence[str] = (),
        row: Row | None = None,
        columns: Mapping[str, pb.ColumnValue] | None = None,
    ) -> pb.PromptGroup:
        """A group of these completions. Ids that are not given are new ones."""
        row = row or next(self._turn)
        number = next(self._numbers)
        group = pb.PromptGroup(
            group_id=f"1-g{number}",
            prompt=[pb.Message(role=role, content=content) for role, content in row.prompt],
            columns={name: column(value) for name, value in row.columns.items()}
            if columns is None
            else columns,
            prompt_text="".join(f"<|{role}|>{content}" for role, content in row.prompt),
        )
        for index, text in enumerate(texts):
            group.completions.add(
                completion_id=ids[index] if ids else f"{number}-{index}",
                text=text,
                token_count=max(1, len(text) // 4),
                finish_reason=pb.Completion.FINISH_REASON_STOP,
            )
        return group

    def batch(
        self,
        *groups: pb.PromptGroup,
        batch_id: str = "",
        keys: Sequence[str] = (),
        timeout: float | None = None,
    ) -> pb.Batch:
        """A batch of these groups; its id is a new one unless it is given."""
        return pb.Batch(
            batch_id=batch_id or str(uuid.uuid4()),
            timeout=duration(self._timeout if timeout is None else timeout),
            groups=groups,
            step=1,
            purpose=pb.Batch.PURPOSE_PREFLIGHT,
            reward_keys=keys,
        )

    def many(self, count: int, *, per_group: int = 8, timeout: float | None = None) -> pb.Batch:
        """A batch of `count` completions, or of as many as the server takes."""
        count = min(count, self.most)
        groups = []
        for begin in range(0, count, per_group):
            size = min(per_group, count - begin)
            groups.append(self.group(TEXTS[(begin + i) % len(TEXTS)] for i in range(size)))
        return self.batch(*groups, timeout=timeout)


def column(value: Any) -> pb.ColumnValue:
    """A JSON value as a column."""
    if value is None:
        return pb.ColumnValue()
    if isinstance(value, bool):  # before int, of which it is one
        return pb.ColumnValue(bool_value=value)
    if isinstance(value, str):
        return pb.ColumnValue(string_value=value)
    if isinstance(value, int) and value in _INT64:
        return pb.ColumnValue(int_value=value)
    if isinstance(value, float) and math.isfinite(value):
        return pb.ColumnValue(double_value=value)
    return pb.ColumnValue(json_value=json.dumps(value))


def duration(seconds: float) -> duration_pb2.Duration:
    """A protobuf duration."""
    made = duration_pb2.Duration()
    made.FromMicroseconds(round(seconds * 1e6))
    return made


def ids_of(batch: pb.Batch) -> list[str]:
    """Ids of a batch's completions."""
    return [completion.completion_id for group in batch.groups for completion in group.completions]
