"""The yardstick: the scorer's frames, made beforehand, to a bare grpc.aio echo and back. Nothing is scored.

python -m reward_paths.echo_side ADDRESS SERVER_PID COMPLETIONS
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import grpc
import grpc.aio

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.types.scoring import Completion, Prompt
from reward_paths.echo_server import MESSAGE_BYTES, METHOD
from reward_paths.turns import Rollout, take_turns
from reward_paths.work import FRAME, GROUP_SIZE, length_share

_GROUPS_IN_FRAME = FRAME // GROUP_SIZE


class EchoPath:
    """All frames over one stream, written as fast as gRPC takes them."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        channel = grpc.aio.insecure_channel(address, options=[MESSAGE_BYTES])
        self._echo = channel.stream_stream(
            METHOD, pb.ScoreRequest.SerializeToString, pb.ScoreRequest.FromString
        )

    def prepare(self, work: Rollout) -> list[pb.ScoreRequest]:
        """The frames."""
        return [
            _frame(f"batch-{start:030d}", work[start : start + _GROUPS_IN_FRAME])
            for start in range(0, len(work), _GROUPS_IN_FRAME)
        ]

    def score(self, requests: list[pb.ScoreRequest]) -> list[pb.ScoreRequest]:
        """Sends everything and reads what comes back."""
        return self._loop.run_until_complete(self._exchange(requests))

    def values(self, answers: list[pb.ScoreRequest]) -> Mapping[str, float]:
        """As if the echo had scored."""
        return {
            completion.completion_id: length_share(completion.text)
            for answer in answers
            for group in answer.batch.groups
            for completion in group.completions
        }

    async def _exchange(self, requests: list[pb.ScoreRequest]) -> list[pb.ScoreRequest]:
        call = self._echo()

        async def write() -> None:
            for request in requests:
                await call.write(request)
            await call.done_writing()

        writing = asyncio.create_task(write())
        answers = []
        while isinstance(answer := await call.read(), pb.ScoreRequest):
            answers.append(answer)
        await writing
        return answers


def _frame(batch_id: str, groups: Rollout) -> pb.ScoreRequest:
    return pb.ScoreRequest(
        batch=pb.Batch(batch_id=batch_id, step=1, groups=[_group(*group) for group in groups])
    )


def _group(prompt: Prompt, completions: list[Completion]) -> pb.PromptGroup:
    return pb.PromptGroup(
        group_id=prompt.group_id,
        prompt=[pb.Message(role=turn.role, content=turn.content) for turn in prompt.messages],
        columns={name: pb.ColumnValue(int_value=int(str(value))) for name, value in prompt.columns.items()},
        prompt_text=prompt.text,
        completions=[
            pb.Completion(
                completion_id=completion.completion_id,
                text=completion.text,
                token_count=completion.token_count,
                finish_reason=pb.Completion.FINISH_REASON_STOP,
            )
            for completion in completions
        ],
    )


if __name__ == "__main__":
    take_turns(EchoPath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
