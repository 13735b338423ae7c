"""Between the rollout and the scorer: completions go out the moment they end, scores are joined by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from plaudit.scoring import CompletionScores
from plaudit.types.scoring import Completion, Prompt, Purpose
from trainer_service.training.samples import Sample

TURN_SECONDS = 1.0
"""The longest wait before a cancel is looked for and the status is told anew."""


class Scorer(Protocol):
    """What is used of `plaudit.scoring.RewardScorer`. Times are in seconds."""

    def submit(
        self, prompt: Prompt, completion: Completion, *, step: int, group_size: int, purpose: Purpose
    ) -> None:
        """Sends a completion to every reward. Never waits."""

    def wait(self, completion_ids: Iterable[str], timeout: float) -> bool:
        """Waits until every reward has an outcome for every id; False where time ran out first."""

    def take(self, completion_ids: Iterable[str]) -> Mapping[str, CompletionScores]:
        """Hands over the outcomes and forgets them."""

    def status_detail(self) -> str:
        """What is waited for, for people; empty where nothing is."""

    def pause_reason(self) -> str | None:
        """Why the job should pause, as a server said; None: no reason."""


class Watch(Protocol):
    """The eye that waits keep on the run's control."""

    @property
    def cancel_requested(self) -> bool:
        """Whether the run is to stop."""

    def check(self) -> None:
        """Raises RunCancelledError where the run was cancelled."""

    def waiting_for(self, detail: str) -> None:
        """Tells what the run waits for, for people; empty: for nothing."""


def submit(scorer: Scorer, sample: Sample, *, step: int, group_size: int) -> None:
    """Sends one completion to be scored."""
    prompt = Prompt(
        group_id=sample.group_id,
        messages=sample.prompt.messages,
        columns=sample.prompt.columns,
        text=sample.prompt.text,
    )
    scorer.submit(prompt, sample.completion, step=step, group_size=group_size, purpose=Purpose.TRAIN)


def collect(scorer: Scorer, samples_B: Sequence[Sample], watch: Watch) -> list[CompletionScores]:
    """Waits for the scores of all samples and returns them in the samples' order.

    Raises RunCancelledError where the run is cancelled while it waits, and InternalError where the scorer
    broke down. All that the scorer does has a deadline, so that this ends without one of its own.
    """
    ids = [sample.completion.completion_id for sample in samples_B]
    while not scorer.wait(ids, TURN_SECONDS):
        watch.check()
        watch.waiting_for(scorer.status_detail())
    watch.waiting_for("")
    scores = scorer.take(ids)
    return [scores[completion_id] for completion_id in ids]
