"""A checkpoint becomes a model that anyone loads: a Hugging Face folder, checked before it is handed out.

The folder is loaded again and must write what the trained policy writes, and something else than the base
model: a merge that lost the adapters, or that rounded them away, is caught here and not by its users.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from peft import PeftModel
from peft.utils import CONFIG_NAME as ADAPTER_CONFIG
from peft.utils import SAFETENSORS_WEIGHTS_NAME as ADAPTER_WEIGHTS
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from plaudit.errors import PlauditError
from plaudit.types.statuses import ErrorCode
from plaudit.types.training_hyperparameters import TrainingHyperparameters
from trainer_service.exported import WeightType
from trainer_service.training.memory import free_memory_bytes
from trainer_service.training.models import end_token_ids
from trainer_service.training.starts import VerifiedInit, load_start

MOST_DEVIATION: Final = {"float32": 1e-3, "bfloat16": 0.1}
"""How far the exported logits may lie from the policy's, as a part of the spread of the policy's logits."""

_TYPES: Final[dict[WeightType, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ExportError(PlauditError):
    """A model was not exported; the message says what was found and what to do."""

    default_reason = "EXPORT_ERROR"
    code = ErrorCode.MODEL_ERROR


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was measured on the probes, in logits.

    `spread` is the standard deviation of the policy's logits, `from_policy` the largest difference between
    exported model and policy, `from_base` between policy and base model.
    """

    probes: int
    spread: float
    from_policy: float
    from_base: float


def export_model(
    checkpoint: Path,
    folder: Path,
    *,
    base_model: str,
    hyperparameters: TrainingHyperparameters,
    probes: Sequence[Sequence[int]],
    device: torch.device,
    inits: Sequence[VerifiedInit] = (),
    weight_type: WeightType = "float32",
) -> ExportReport:
    """Writes the policy of a verified `checkpoint` into `folder`, which appears when it is complete.

    Adapters are merged into the base model: for a base of 4 bits into its weights as the policy has them, so
    that nothing is rounded again. `inits` are the checkpoints that the job started from; what they made of
    the base model is then what the policy is compared with. `probes` are prompts as token ids, at least one.
    Raises ExportError where the files do not write what the policy writes, or the policy writes what its base
    writes.
    """
    _check_probes(probes)
    unfinished = _fresh(folder)
    start = load_start(base_model, hyperparameters, device, inits)
    base, tokenizer = start.model, start.tokenizer
    base_logits = _logits(base, probes)
    if hyperparameters.load_in_4bit:
        # peft would merge into 4 bits and round to them: the base is unpacked, as the policy sees it.
        policy_logits = _logits(_with_checkpoint(base, checkpoint, hyperparameters, device), probes)
        _check_room(base, device)
        del start, base
        base = load_start(base_model, hyperparameters, device, inits, unpacked=True).model
        model = _with_checkpoint(base, checkpoint, hyperparameters, device)
    else:
        del start
        model = _with_checkpoint(base, checkpoint, hyperparameters, device)
        policy_logits = _logits(model, probes)
    del base
    merged: Any = model.merge_and_unload() if isinstance(model, PeftModel) else model
    del model
    _name_ends(merged, tokenizer)
    merged.to(_TYPES[weight_type]).save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    # One whole model at a time: training may have needed no more memory than that.
    del merged
    exported_logits = _logits(_load(unfinished, device), probes)
    report = _compared(exported_logits, policy_logits, base_logits)
    _judge(report, weight_type)
    _replace(unfinished, folder)
    return report


def export_adapter(
    checkpoint: Path,
    folder: Path,
    *,
    base_model: str,
    hyperparameters: TrainingHyperparameters,
    probes: Sequence[Sequence[int]],
    device: torch.device,
    weight_type: WeightType = "float32",
) -> ExportReport:
    """Writes the adapters of a verified `checkpoint` alone, for the base model itself; as `export_model`.

    The checkpoint must hold adapters, and they must have been trained on nothing but the base model.
    """
    _check_probes(probes)
    unfinished = _fresh(folder)
    start = load_start(base_model, hyperparameters, device)
    base, tokenizer = start.model, start.tokenizer
    base_logits = _logits(base, probes)
    adapted = PeftModel.from_pretrained(base, checkpoint)
    policy_logits = _logits(adapted, probes)
    weights = load_file(checkpoint / ADAPTER_WEIGHTS)
    save_file(
        {name: weight.to(_TYPES[weight_type]) for name, weight in weights.items()},
        unfinished / ADAPTER_WEIGHTS,
        metadata={"format": "pt"},
    )
    shutil.copyfile(checkpoint / ADAPTER_CONFIG, unfinished / ADAPTER_CONFIG)
    tokenizer.save_pretrained(unfinished)
    reloaded = PeftModel.from_pretrained(adapted.unload(), unfinished)
    report = _compared(_logits(reloaded, probes), policy_logits, base_logits)
    _judge(report, weight_type)
    _replace(unfinished, folder)
    return report


def _check_probes(probes: Sequence[Sequence[int]]) -> None:
    if not probes:
        raise ValueError("an export is checked on at least one prompt")


def _fresh(folder: Path) -> Path:
    """An empty folder beside `folder`, to be renamed to it."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    return unfinished


def _check_room(packed: PreTrainedModel, device: torch.device) -> None:
    needed = 4 * packed.num_parameters()
    free = free_memory_bytes(device)
    if needed > free:
        raise ExportError(
            f"the base of 4 bits takes {needed / 1e9:.1f} GB where it is unpacked to be merged, and "
            f"{free / 1e9:.1f} GB are free on {device}; export the adapters alone, or on a machine with more "
            "memory"
        )


def _name_ends(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Lets `generate` end where the policy was taught to end: a chat's turn may close with another token."""
    ends = sorted(end_token_ids(model, tokenizer))
    model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]


def _with_checkpoint(
    base: PreTrainedModel, checkpoint: Path, hyperparameters: TrainingHyperparameters, device: torch.device
) -> PreTrainedModel | PeftModel:
    if hyperparameters.lora_rank is not None:
        return PeftModel.from_pretrained(base, checkpoint)
    return _load(checkpoint, device)


def _load(folder: Path, device: torch.device) -> PreTrainedModel:
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    model: PreTrainedModel = loaded.to(device)
    return model


def _logits(model: PreTrainedModel | PeftModel, probes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Logits at every position of each probe, (T, V) each, on the CPU."""
    model.eval()
    device = next(model.parameters()).device
    with torch.no_grad():
        return [
            model(input_ids=torch.tensor([list(probe)], device=device)).logits[0].float().cpu()
            for probe in probes
        ]


def _compared(
    exported_logits: list[torch.Tensor], policy_logits: list[torch.Tensor], base_logits: list[torch.Tensor]
) -> ExportReport:
    return ExportReport(
        probes=len(policy_logits),
        spread=float(torch.cat(policy_logits).std()),
        from_policy=_largest_difference(exported_logits, policy_logits),
        from_base=_largest_difference(policy_logits, base_logits),
    )


def _largest_difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


def _judge(report: ExportReport, weight_type: WeightType) -> None:
    if report.from_base == 0.0:
        raise ExportError(
            "the trained policy writes exactly what its base model writes: no weight has moved, because no "
            "step taught anything or all were skipped; look at zero_std_group_fraction and unscored_fraction"
        )
    if report.from_policy > MOST_DEVIATION[weight_type] * report.spread:
        raise ExportError(
            f"the exported model does not write what the policy writes: its logits lie up to "
            f"{report.from_policy:.3g} away, with a spread of {report.spread:.3g}; the checkpoint itself is "
            "as it was"
        )
    if report.from_policy >= 0.5 * report.from_base:
        raise ExportError(
            f"the exported model lies {report.from_policy:.3g} from the policy, which itself has moved only "
            f"{report.from_base:.3g} from its base: {weight_type} weights round away what was learnt"
            + (
                "; train on, or take the checkpoint"
                if weight_type == "float32"
                else '; export it as "float32"'
            )
        )


def _replace(unfinished: Path, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)
