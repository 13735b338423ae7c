"""The queue of one program: portions, blame, and being left alone after breaking worker after worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from plaudit.types.scoring import ChatMessage, Completion, Failed, FailureCode, NotApplicable, Prompt, Scored
from reward_service._item import Item
from reward_service.sandbox import Program, Signature
from reward_service.sandbox._prints import Lines, PrintLog
from reward_service.sandbox._queue import ProgramQueue, Waiting
from reward_service.sandbox._worker import WorkerBroke


def program(batch_size: int = 1) -> Program:
    return Program("source", "r.py", None, None, "text", batch_size, 1.0, False)


def queue_of(count: int, batch_size: int = 1) -> tuple[ProgramQueue, list[Waiting]]:
    queue = ProgramQueue(program(batch_size))
    queue.loaded(Signature("reward", "trl", ()))
    loop = asyncio.get_running_loop()
    prompt = Prompt("g", (ChatMessage("user", "Q"),))
    waiting = [
        Waiting(Item[Any](prompt, Completion(str(i), "text"), None), loop.create_future())
        for i in range(count)
    ]
    queue.waiting.extend(waiting)
    return queue, waiting


async def test_answers_go_to_their_completions() -> None:
    queue, waiting = queue_of(5, batch_size=2)
    portion = queue.take_portion()
    assert portion is not None
    assert portion.calls == 3
    portion.take_reply({"values": [1, None], "metrics": {"m": 2.0}, "extra": {"0": "said"}})
    portion.take_reply({"error": "raised X"})
    portion.take_reply({"values": [{"error": "returned nan"}]})
    queue.finished(portion)
    assert [one.outcome.result() for one in waiting] == [
        Scored(1.0, {"m": 2.0}, "said"),
        NotApplicable(""),
        Failed(FailureCode.INTERNAL, "reward raised X"),
        Failed(FailureCode.INTERNAL, "reward raised X"),
        Failed(FailureCode.INTERNAL, "reward returned nan"),
    ]


async def test_a_lost_worker_is_the_fault_of_the_call_that_ran() -> None:
    queue, waiting = queue_of(4)
    portion = queue.take_portion()
    assert portion is not None
    portion.take_reply({"values": [1.0]})
    queue.broke(portion, WorkerBroke(FailureCode.TIMEOUT, "ran for longer than its 1 s"))
    assert waiting[0].outcome.result() == Scored(1.0)
    assert waiting[1].outcome.result() == Failed(FailureCode.TIMEOUT, "reward ran for longer than its 1 s")
    assert list(queue.waiting) == waiting[2:]


@pytest.mark.parametrize(
    "frame",
    [
        {},
        *({"values": values} for values in ([], [1.0, 1.0], ["1"], [True], [float("inf")], 1, [{}])),
        {"values": [1.0], "extra": 3},
    ],
)
async def test_forged_answers_are_no_answers(frame: dict[str, Any]) -> None:
    queue, _ = queue_of(1)
    portion = queue.take_portion()
    assert portion is not None
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        portion.take_reply(frame)


async def test_a_program_that_breaks_worker_after_worker_is_left_alone() -> None:
    queue, waiting = queue_of(20)
    for _ in range(8):
        assert queue.tripped_outcome is None
        portion = queue.take_portion()
        assert portion is not None
        queue.broke(portion, WorkerBroke(FailureCode.TIMEOUT, "ran too long"))
    assert queue.tripped_outcome == Failed(
        FailureCode.TIMEOUT, "reward was not tried: 8 calls in a row broke a limit; the last one ran too long"
    )
    assert all(one.outcome.done() for one in waiting)


async def test_cancelled_completions_free_the_worker() -> None:
    queue, waiting = queue_of(6)
    portion = queue.take_portion()  # the first four
    assert portion is not None
    killed: list[bool] = []
    portion.kill = lambda: killed.append(True)
    for one in (waiting[1], waiting[5]):
        one.outcome.cancel()
    queue.forget_cancelled()
    assert not killed
    assert list(queue.waiting) == [waiting[4]]
    waiting[0].outcome.cancel()
    queue.forget_cancelled()
    assert killed
    queue.broke(portion, WorkerBroke(FailureCode.CANCELLED, "ended"))
    assert [one for one in queue.waiting if not one.outcome.done()] == [waiting[2], waiting[3], waiting[4]]


def test_prints_are_cut_into_lines_and_bounded() -> None:
    with structlog.testing.capture_logs() as logs:
        lines = Lines(PrintLog("r.py"))
        lines.take(b"one\ntw")
        lines.take(b"o\n" + b"x" * 10_000)
        lines.take(b"\n" + b"\xff\n" + b"more\n" * 1000)
    texts = [record["text"] for record in logs]
    assert texts[:2] == ["one", "two"]
    assert texts[2] == "x" * 2048 + "…"
    assert texts[3] == "\ufffd"
    assert len(texts) == 200
