"""Our side: a whole run, as the trainer service starts it, with journal, completions file and gRPC scoring.

python -m against_trl.ours WORK
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from against_trl.stages import StepTurns, own_stdout
from against_trl.work import BATCH, GROUP_SIZE, KL_COEF, LEARNING_RATE, RESPONSE_LENGTH, ROWS, SEED, Work
from plaudit.service import configure_logging
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import DatasetReference, RewardBinding, RewardTarget, RunSpec
from trainer_service.control import RunControl
from trainer_service.journal import JournalWriter
from trainer_service.run_directory import RunDirectories, RunStart
from trainer_service.training import session
from trainer_service.training.reporting import RunReporter
from trainer_service.training.rollout import FinishedRow
from trainer_service.training.trainer import GrpoTrainer


def main(work: Work) -> None:
    """Trains, a step a turn."""
    reports = own_stdout()
    configure_logging("benchmark")

    class TurnTakingTrainer(GrpoTrainer):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            self._turns = StepTurns(self, work, reports)
            self._turns.time(self, "_pass_ahead", "policy_forward")

        def _send_to_scorer(self, row: FinishedRow) -> None:
            super()._send_to_scorer(row)
            self._turns.note_finished(row.index)

    # The session builds its trainer by this name.
    vars(session)["GrpoTrainer"] = TurnTakingTrainer
    start = RunStart(
        run_id="run-benchmark",
        job_id="job-benchmark",
        attempt=1,
        spec=run_spec(work),
        artifact_root=Path(work.artifact_root),
    )
    run_dir = RunDirectories(Path(work.scratch)).create(start)
    # Both ends of the control line are here: nobody commands, and what is reported stays in the pipe.
    control = RunControl(*os.pipe())
    with JournalWriter(run_dir) as journal:
        session.train(start, run_dir, RunReporter(journal, control))


def run_spec(work: Work) -> RunSpec:
    """The job, as a gateway would resolve it."""
    return RunSpec(
        base_model=work.model_dir,
        output_name="benchmark",
        method="grpo",
        hyperparameters=GrpoHyperparameters(
            rollouts_per_prompt=GROUP_SIZE,
            global_batch_size=BATCH,
            micro_batch_size=BATCH,
            max_response_length=RESPONSE_LENGTH,
            learning_rate=LEARNING_RATE,
            kl_coef=KL_COEF,
            max_steps=work.steps,
            checkpoint_every=float(work.steps),
            seed=SEED,
        ),
        dataset=DatasetReference(uri=work.dataset_uri, sha256=Path(work.dataset_uri).stem, row_count=ROWS),
        rewards=(
            RewardTarget(
                binding=RewardBinding(name="reward", server="benchmark", reward=work.reward),
                addresses=(work.reward_address,),
            ),
        ),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Work.from_json(sys.argv[1]))
