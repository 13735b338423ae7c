"""The rival: TRL's GRPOTrainer as it is, with the reward in its own process.

python -m against_trl.rival WORK
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from datasets import Dataset
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from against_trl.reward import trl_quick, trl_slow
from against_trl.stages import StepTurns, own_stdout
from against_trl.work import BATCH, GROUP_SIZE, KL_COEF, LEARNING_RATE, RESPONSE_LENGTH, SEED, Work

REWARDS: dict[str, Any] = {"quick": trl_quick, "slow": trl_slow}


def main(work: Work) -> None:
    """Trains, a step a turn."""
    reports = own_stdout()
    rows = pq.read_table(Path(work.artifact_root) / work.dataset_uri).column("prompt").to_pylist()
    trainer = GRPOTrainer(
        model=work.model_dir,
        reward_funcs=[REWARDS[work.reward]],
        args=GRPOConfig(
            output_dir=work.scratch,
            use_cpu=True,
            bf16=False,
            # Saves memory at the price of time; ours leaves it out on the CPU, too.
            gradient_checkpointing=False,
            per_device_train_batch_size=BATCH,
            num_generations=GROUP_SIZE,
            max_completion_length=RESPONSE_LENGTH,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            max_steps=work.steps,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            beta=KL_COEF,
            loss_type="dapo",
            scale_rewards="group",
            optim="adamw_torch",
            seed=SEED,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": json.loads(row)} for row in rows]),
    )
    StepTurns(trainer, work, reports)
    trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Work.from_json(sys.argv[1]))
