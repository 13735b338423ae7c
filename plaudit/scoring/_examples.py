"""Asking a reward server for texts whose worth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc
import grpc.aio

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import error_from_rpc
from plaudit.scoring._convert import prompt_message, selection_message
from plaudit.types.jobs import RewardBinding
from plaudit.types.scoring import Examples, Prompt

MAX_TEXTS: Final = 4
"""Good, and bad, texts that are taken for one prompt."""


@dataclass(frozen=True, slots=True)
class KnownTexts:
    """What a reward calls good and bad: examples by group id, none where it writes none.

    `problem` says why it could not be asked, or could not answer; "" where all is well.
    """

    examples: Mapping[str, Examples] = field(default_factory=dict)
    problem: str = ""


async def ask_for_examples(
    channel: grpc.aio.Channel, binding: RewardBinding, prompts: Sequence[Prompt], timeout: float
) -> KnownTexts:
    """The examples of one reward for these prompts. Never raises for what the server does."""
    request = pb.MakeExamplesRequest(
        reward=selection_message(binding), groups=[prompt_message(prompt) for prompt in prompts]
    )
    try:
        answer = await pb_grpc.RewardServiceStub(channel).MakeExamples(request, timeout=timeout)
    except grpc.aio.AioRpcError as failure:
        if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
            return KnownTexts()
        return KnownTexts(problem=error_from_rpc(failure).message)
    asked = {prompt.group_id for prompt in prompts}
    return KnownTexts(
        {
            written.group_id: Examples(
                tuple(written.good_texts[:MAX_TEXTS]), tuple(written.bad_texts[:MAX_TEXTS])
            )
            for written in answer.examples
            if written.group_id in asked
        }
    )
