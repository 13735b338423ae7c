"""Pauses before another try: what failed together travels together, and no two clients keep one beat."""

from __future__ import annotations

import pytest

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.scoring._backoff import RETRY_FIRST_SECONDS
from plaudit.scoring._compatibility import RewardRules
from plaudit.scoring._convert import valid_completion
from plaudit.scoring._retrying import Retries
from plaudit.scoring._routing import Router
from plaudit.scoring._work import PromptHead, Submission, Terms, Unit
from plaudit.types.jobs import RewardBinding
from plaudit.types.scoring import Completion, Failed, FailureCode, Prompt, Purpose

TRIES = 40


@pytest.fixture
def unit() -> Unit:
    """Of a job that allows 40 tries; sent for the first time at 0."""
    router = Router(
        [RewardBinding(name="k", server="s", reward="k", max_attempts=TRIES, retry_seconds=3600.0)]
    )
    router.learn({"k": RewardRules(low=0.0, high=1.0, is_deterministic=False, whole_group=False)})
    completion = Completion("1-0", "x")
    prompt = pb.PromptGroup(group_id="g")
    head = PromptHead(Prompt("g", ()), prompt, prompt.ByteSize())
    terms = Terms(1, Purpose.TRAIN, 1, ("k",), wants_all=True)
    (made,) = router.route([Submission(completion, valid_completion(completion)[1], head, terms, 0.0)], 0.0)
    made.first_sent_at = 0.0
    return made


@pytest.mark.parametrize("asked", [None, 10.0])
def test_pauses_are_uneven_and_shared_by_what_failed_together(unit: Unit, asked: float | None) -> None:
    busy = Failed(FailureCode.UNAVAILABLE, "", asked)
    retries = Retries(lambda units: None)
    pauses = {float(now): retries.delay(unit, busy, float(now)) or 0.0 for now in range(1, TRIES)}
    assert len(set(pauses.values())) > TRIES / 2
    least = asked or RETRY_FIRST_SECONDS / 2
    assert all(
        least <= pause <= (1.25 * asked if asked else RETRY_FIRST_SECONDS) for pause in pauses.values()
    )
    together = {retries.delay(unit, busy, 100.0) for _ in range(10)}
    assert len(together) == 1
