"""How the run of any method comes to its first step, and how it ends."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from transformers import PreTrainedModel, Trainer

from plaudit.types.statuses import RunState
from trainer_service.journal import RunStateChanged
from trainer_service.run_directory import RunStart
from trainer_service.training.checkpoints import Checkpoint, CheckpointStore
from trainer_service.training.config import TrainingPlan, compute_dtype
from trainer_service.training.reporting import RunReporter
from trainer_service.training.step_rules import CommonStepRules

_VERSIONED = ("plaudit", "torch", "transformers", "trl", "peft", "accelerate")


class PauseBeforeTrainingError(Exception):
    """A pause was asked for while there was nothing to save yet."""


def enter_stage(reporter: RunReporter, detail: str) -> None:
    """Tells what is done now, for people. Raises where the run is to stop, or to pause."""
    reporter.check()
    if reporter.pause_requested:
        raise PauseBeforeTrainingError
    reporter.waiting_for(detail)


def checkpoint_store(start: RunStart, reporter: RunReporter) -> CheckpointStore:
    """Where the run writes its checkpoints."""
    return CheckpointStore(
        start.artifact_root,
        job_id=start.job_id,
        attempt=start.attempt,
        keep=start.spec.hyperparameters.checkpoint_keep,
        announce=reporter.append,
    )


def circumstances(start: RunStart, model: PreTrainedModel, device: torch.device) -> dict[str, Any]:
    """The run's record of what it depends on, beside its spec."""
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "compute_dtype": str(compute_dtype(start.spec.hyperparameters, device)).removeprefix("torch."),
        "dataset": start.spec.dataset.model_dump(),
        "base_model": start.spec.base_model,
        "init_checkpoints": [init.model_dump() for init in start.spec.init_checkpoints],
        # transformers sets it for models of the hub only.
        "model_revision": getattr(model.config, "_commit_hash", None),
        "versions": {name: version(name) for name in _VERSIONED},
    }


def device_name(device: torch.device) -> str:
    """The device, for people."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def train_to_the_end(
    trainer: Trainer,
    rules: CommonStepRules,
    plan: TrainingPlan,
    checkpoint: Checkpoint | None,
    reporter: RunReporter,
) -> RunStateChanged:
    """Trains from `checkpoint`, or from the start, and returns the run's last state."""
    reporter.starts_at(checkpoint.step if checkpoint else 0, plan.total_steps)
    reporter.enter(RunState.RUNNING)
    trainer.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)
    if trainer.state.global_step < plan.total_steps or rules.leaves_its_last_step:
        assert rules.pause_reason is not None, "training stopped early without a reason"
        return RunStateChanged(RunState.PAUSED, reason=rules.pause_reason)
    return RunStateChanged(RunState.COMPLETED)
