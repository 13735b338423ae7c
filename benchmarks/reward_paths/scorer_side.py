"""Our side: the trainer's scorer.

python -m reward_paths.scorer_side ADDRESS SERVER_PID COMPLETIONS
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from plaudit.scoring import CompletionScores, RewardScorer
from plaudit.service import configure_logging
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import Scored
from reward_paths.turns import Rollout, take_turns
from reward_paths.work import GROUP_SIZE, REWARD

_PATIENCE_SECONDS = 60.0


class ScorerPath:
    """Completions are submitted one by one, as they end in a rollout, and taken when all are scored."""

    def __init__(self, scorer: RewardScorer) -> None:
        self._scorer = scorer
        self._step = 0

    def prepare(self, work: Rollout) -> Rollout:
        """The completions as they are."""
        return work

    def score(self, requests: Rollout) -> Mapping[str, CompletionScores]:
        """Submits, waits and takes."""
        self._step += 1
        for prompt, group in requests:
            for completion in group:
                self._scorer.submit(prompt, completion, step=self._step, group_size=GROUP_SIZE)
        ids = [completion.completion_id for _, group in requests for completion in group]
        self._scorer.wait(ids, _PATIENCE_SECONDS)
        return self._scorer.take(ids)

    def values(self, answers: Mapping[str, CompletionScores]) -> dict[str, float]:
        """Of those that were scored."""
        return {
            completion_id: outcome.value
            for completion_id, scores in answers.items()
            if isinstance(outcome := scores.outcomes[REWARD].outcome, Scored)
        }


def main(address: str, server_pid: int, completions: int) -> None:
    """Takes turns."""
    configure_logging("benchmark")
    binding = RewardBinding(name=REWARD, server="benchmark", reward=REWARD)
    target = RewardTarget(binding=binding, addresses=(address,))
    with RewardScorer([target], session_scope="benchmark", job_id="benchmark", model="none") as scorer:
        if not scorer.wait_ready(_PATIENCE_SECONDS):
            sys.exit(scorer.status_detail() or "the reward server is not there")
        take_turns(ScorerPath(scorer), server_pid, completions)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
