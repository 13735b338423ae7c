"""What tells one batch from another: everything of its groups and reward keys, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service._convert import batch_of


def batch(change: Callable[[pb.Batch], object] = lambda batch: None) -> pb.Batch:
    """Two groups of two completions, changed."""
    made = pb.Batch(batch_id="b", step=3, purpose=pb.Batch.PURPOSE_TRAIN, reward_keys=["a"])
    made.timeout.FromSeconds(60)
    for name in ("g0", "g1"):
        group = made.groups.add(group_id=name, prompt_text=f"<{name}>")
        group.prompt.add(role="user", content="How many?")
        group.columns["answer"].int_value = 72
        group.columns["level"].string_value = "easy"
        for index in range(2):
            group.completions.add(
                completion_id=f"{name}-{index}",
                text="seventy-two",
                token_count=4,
                finish_reason=pb.Completion.FINISH_REASON_STOP,
            )
    change(made)
    return made


def fingerprint(made: pb.Batch) -> int:
    return batch_of(made).fingerprint


def move_a_completion(made: pb.Batch) -> None:
    """The same completions in the same order, the groups parted elsewhere."""
    made.groups[1].completions.insert(0, made.groups[0].completions.pop())


def columns_the_other_way_round(made: pb.Batch) -> None:
    for group in made.groups:
        columns = sorted(group.columns.items(), reverse=True)
        kept = [(name, value.SerializeToString()) for name, value in columns]
        group.ClearField("columns")
        for name, value in kept:
            group.columns[name].ParseFromString(value)


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.timeout.FromSeconds(7),
        lambda made: setattr(made, "step", 4),
        lambda made: setattr(made, "purpose", pb.Batch.PURPOSE_EVAL),
        lambda made: setattr(made, "traceparent", f"00-{'1' * 32}-{'2' * 16}-01"),
        columns_the_other_way_round,
    ],
    ids=["timeout", "step", "purpose", "traceparent", "order of columns"],
)
def test_what_may_change_when_a_batch_is_sent_again(change: Callable[[pb.Batch], object]) -> None:
    assert fingerprint(batch(change)) == fingerprint(batch())


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.reward_keys.append("b"),
        lambda made: setattr(made.groups[1], "group_id", "g2"),
        lambda made: setattr(made.groups[1], "prompt_text", "<g2>"),
        lambda made: setattr(made.groups[0].prompt[0], "role", "system"),
        lambda made: setattr(made.groups[0].prompt[0], "content", "How few?"),
        lambda made: setattr(made.groups[0].columns["answer"], "double_value", 72.0),
        lambda made: setattr(made.groups[0].columns["answer"], "bool_value", True),
        lambda made: made.groups[0].columns["more"].SetInParent(),
        lambda made: setattr(made.groups[0].completions[0], "completion_id", "g0-9"),
        lambda made: setattr(made.groups[0].completions[0], "text", "seventy-three"),
        lambda made: setattr(made.groups[0].completions[0], "token_count", 5),
        lambda made: setattr(made.groups[0].completions[0], "finish_reason", 2),
        lambda made: setattr(made.groups[0].completions[0], "prefill", "<think>"),
        lambda made: setattr(made.groups[0].completions[0], "raw_text", "seventy-two<end>"),
        lambda made: made.groups[0].completions.pop(),
        move_a_completion,
        lambda made: made.groups.reverse(),
    ],
)
def test_what_makes_it_another_batch(change: Callable[[pb.Batch], object]) -> None:
    assert fingerprint(batch(change)) != fingerprint(batch())
