"""How much of a completion math_answer reads, and that its processes are there before the work is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from score_conversation import Conversation, eventually, group

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.rewards.math_answer import CANARIES, math_answer
from reward_service.workers import WorkerPool

WORKER = Path(sys.modules["reward_service.workers"].__file__ or "").with_name("math_worker.py")
FILLER = "and so it goes on, word by word. " * 6_000


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    command = [sys.executable, "-I", str(WORKER), str(os.getpid()), str(1 << 30)]
    async with WorkerPool("math_answer", command, size=2, canaries=CANARIES) as opened:
        # Else a session that is opened waits for them, and for seconds alone.
        await opened.ready()
        await eventually(lambda: len(opened.pids) == 2)
        yield opened


async def scores(serve: Any, pool: WorkerPool, texts: list[str], **config: Any) -> list[pb.Result]:
    talk = Conversation(await serve(math_answer(pool, 2)))
    await talk.open("math_answer", math_answer=json.dumps({"timeout_seconds": 60.0, **config}))
    await talk.send(pb.Batch(batch_id="a", groups=[group(texts, answer=12)]))
    await talk.until("a")
    return [talk.of("a")[str(index)] for index in range(len(texts))]


async def test_of_a_text_without_end_the_end_alone_is_read(serve: Any, pool: WorkerPool) -> None:
    """200,000 characters; the right answer lies before the part that is read, or in it."""
    texts = [r"It is $\boxed{12}$. " + FILLER, FILLER + r"So it is $\boxed{12}$."]
    results = await scores(serve, pool, texts)
    assert [result.WhichOneof("outcome") for result in results] == ["score", "score"]
    assert [result.score.value for result in results] == [0.0, 1.0]


async def test_an_answer_without_end_is_wrong_and_never_asked_about(serve: Any, pool: WorkerPool) -> None:
    nine = "9" * 101
    results = await scores(
        serve, pool, [rf"\boxed{{{nine}}}", r"\boxed{12}"], extract="boxed", max_characters=100
    )
    assert [result.score.value for result in results] == [0.0, 1.0]
    assert results[0].score.explanation == "the answer has 101 characters, of at most 100"


async def test_no_completion_starts_a_process(serve: Any, pool: WorkerPool) -> None:
    before = set(pool.pids)
    results = await scores(serve, pool, [f"It is {index % 24}." for index in range(120)])
    assert [result.score.value for result in results] == [float(i % 24 == 12) for i in range(120)]
    assert set(pool.pids) == before
