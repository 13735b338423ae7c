"""What stops a run becomes a code for programs and a way out for people."""

from __future__ import annotations

import errno

import torch

from plaudit.errors import InvalidArgumentError, PlauditError
from plaudit.types.hyperparameters import GrpoHyperparameters
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


def describe_failure(error: Exception, hyperparameters: GrpoHyperparameters) -> RunError:
    """Why the run failed. The traceback is the caller's to log; it does not belong in a journal."""
    if _is_out_of_memory(error):
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


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _CPU_ALLOCATION_FAILED)
    )


def _out_of_memory_message(h: GrpoHyperparameters) -> str:
    micro = "chosen by the trainer" if h.micro_batch_size is None else str(h.micro_batch_size)
    knobs = [
        f"a smaller micro_batch_size (it is {micro})",
        f"a smaller max_response_length (it is {h.max_response_length}) or max_prompt_length "
        f"(it is {h.max_prompt_length})",
    ]
    if h.gradient_checkpointing != "on":
        knobs.append('gradient_checkpointing "on"')
    if h.lora_rank is None:
        knobs.append("lora_rank, for example 16, which needs no optimizer state for the base weights")
    if h.lora_rank is None and h.kl_coef:
        knobs.append("kl_coef 0, which loads no reference model")
    return f"memory ran out; what helps: {'; '.join(knobs)}; or a smaller base model"
