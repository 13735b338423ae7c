"""Where base models come from, and their tokenizers, without what loads their weights."""

from __future__ import annotations

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from plaudit.errors import PlauditError
from plaudit.types.statuses import ErrorCode
from trainer_service.sizing.model_folders import BUILTIN_TINY, local_folder, name_problem
from trainer_service.training.tiny import tiny_model_path


class ModelError(PlauditError):
    """A base model cannot be trained. The message names it, what is wrong and the way out."""

    default_reason = "MODEL_ERROR"
    code = ErrorCode.MODEL_ERROR


def load_tokenizer(base_model: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a base model, as it is. Raises ModelError."""
    source = source_of(base_model)
    try:
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:
        raise unloadable(base_model, error) from error
    return loaded


def source_of(base_model: str) -> str:
    """What transformers is to load for "builtin:tiny", a folder or a hub id. Raises ModelError."""
    if base_model == BUILTIN_TINY:
        return str(tiny_model_path())
    if problem := name_problem(base_model):
        raise ModelError(problem)
    folder = local_folder(base_model)
    return base_model if folder is None else str(folder)


def unloadable(base_model: str, error: Exception) -> ModelError:
    """The error for what transformers could not load."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if "trust_remote_code" in str(error):
        reason = "it brings code of its own, which is never run"
        way_out = "take a model of an architecture that transformers knows"
    elif local_folder(base_model):
        way_out = "check that the folder is complete"
    else:
        way_out = "check the name and the network, or give the path of a folder on the trainer's machine"
    return ModelError(f"base_model {base_model!r} cannot be loaded: {reason}; {way_out}")
