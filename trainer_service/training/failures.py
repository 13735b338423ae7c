"""What stops a run becomes a code for programs and a way out for people."""

from __future__ import annotations

import errno

import torch

from plaudit.errors import InvalidArgumentError, PlauditError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.methods import Hyperparameters
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import ErrorCode
from trainer_service.journal import RunError

_CPU_ALLOCATION_FAILED = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)


class RewardUnavailableError(PlauditError):
    """No reward server can be had, or one does not offer what the job asks for."""

    default_reason = "REWARD_UNAVAILABLE"
    code = ErrorCode.REWARD_UNAVAILABLE


class PreflightFailedError(PlauditError):
    """A preflight found what would make the run worthless. The message names all of it."""

    default_reason = "PREFLIGHT_FAILED"
    code = ErrorCode.PREFLIGHT_FAILED

    @classmethod
    def of(cls, report: PreflightReport) -> PreflightFailedError:
        """The error of a report with critical findings."""
        found = [finding.message for finding in report.critical]
        listed = found[0] if len(found) == 1 else "; ".join(f"({i}) {m}" for i, m in enumerate(found, 1))
        return cls(
            f"the preflight stopped the job before its first step: {listed}. Mend it and resume the job, or "
            'submit it with preflight "warn" to train all the same'
        )


def describe_failure(error: Exception, hyperparameters: Hyperparameters) -> RunError:
    """Why the run failed. The traceback is the caller's to log; it does not belong in a journal."""
    if is_out_of_memory(error):
        return RunError(ErrorCode.OUT_OF_MEMORY, _out_of_memory_message(hyperparameters))
    if isinstance(error, InvalidArgumentError):
        return RunError(ErrorCode.CONFIG_ERROR, error.message)
    if isinstance(error, PlauditError):
        code = getattr(error, "code", ErrorCode.TRAINING_ERROR)
        return RunError(code, error.message)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            ErrorCode.TRAINING_ERROR,
            f"the disk is full ({error}); free some space, or lower checkpoint_keep, then resume the job",
        )
    return RunError(
        ErrorCode.TRAINING_ERROR,
        f"training stopped with {type(error).__name__}: {error}; the run's log on the trainer says more",
    )


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, of the machine or of its accelerator."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _CPU_ALLOCATION_FAILED)
    )


def _out_of_memory_message(h: Hyperparameters) -> str:
    micro = "chosen by the trainer" if h.micro_batch_size is None else str(h.micro_batch_size)
    knobs = [f"a smaller micro_batch_size (it is {micro})"]
    if isinstance(h, GrpoHyperparameters):
        knobs.append(
            f"a smaller max_response_length (it is {h.max_response_length}) or max_prompt_length "
            f"(it is {h.max_prompt_length})"
        )
    else:
        knobs.append(f"a smaller max_length (it is {h.max_length})")
    if h.gradient_checkpointing != "on":
        knobs.append('gradient_checkpointing "on"')
    if h.lora_rank is None:
        knobs.append("lora_rank, for example 16, which needs no optimizer state for the base weights")
    if isinstance(h, GrpoHyperparameters) and h.lora_rank is None and h.kl_coef:
        knobs.append("kl_coef 0, which loads no reference model")
    return f"memory ran out; what helps: {'; '.join(knobs)}; or a smaller base model"
