"""What stops a run, as a code and a way out."""

import errno

import pytest
import torch

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.statuses import ErrorCode
from trainer_service.training.checkpoints import CheckpointError
from trainer_service.training.dataset import DatasetError
from trainer_service.training.failures import RewardUnavailableError, describe_failure
from trainer_service.training.models import ModelError

FULL = GrpoHyperparameters(micro_batch_size=8)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), ErrorCode.OUT_OF_MEMORY),
        (MemoryError(), ErrorCode.OUT_OF_MEMORY),
        (InvalidArgumentError([FieldViolation("a", "b")]), ErrorCode.CONFIG_ERROR),
        (DatasetError("no rows"), ErrorCode.DATASET_ERROR),
        (ModelError("no model"), ErrorCode.MODEL_ERROR),
        (CheckpointError("damaged"), ErrorCode.MODEL_ERROR),
        (RewardUnavailableError("gone"), ErrorCode.REWARD_UNAVAILABLE),
        (OSError(errno.ENOSPC, "No space left on device"), ErrorCode.TRAINING_ERROR),
        (KeyError("surprise"), ErrorCode.TRAINING_ERROR),
    ],
)
def test_codes(error, code):
    assert describe_failure(error, FULL).code is code


def test_a_failed_allocation_on_the_cpu_is_want_of_memory():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55, dtype=torch.float32)
    assert describe_failure(raised.value, FULL).code is ErrorCode.OUT_OF_MEMORY


def test_want_of_memory_names_what_helps():
    message = describe_failure(MemoryError(), FULL).message
    for knob in ("micro_batch_size (it is 8)", "max_response_length (it is 2048)", "lora_rank", "kl_coef 0"):
        assert knob in message
    spare = GrpoHyperparameters(lora_rank=8, gradient_checkpointing="on", kl_coef=0.0)
    message = describe_failure(MemoryError(), spare).message
    assert "lora_rank" not in message and "gradient_checkpointing" not in message


def test_every_wrong_field_is_named():
    error = InvalidArgumentError([FieldViolation("one", "is 1"), FieldViolation("two", "is 2")])
    message = describe_failure(error, FULL).message
    assert "one: is 1" in message and "two: is 2" in message


def test_a_full_disk_says_so():
    message = describe_failure(OSError(errno.ENOSPC, "No space left on device"), FULL).message
    assert "disk is full" in message and "checkpoint_keep" in message
