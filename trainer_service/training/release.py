"""A checkpoint of a job becomes a model that is handed out: checked, described, and complete or not there."""

from __future__ import annotations

import gc
import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from plaudit.errors import InvalidArgumentError, PlauditError
from plaudit.types.jobs import RunSpec
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.statuses import ErrorCode
from trainer_service.exported import ExportedModel, ModelForm, ModelKind, WeightType, read_exported
from trainer_service.journal import ModelExported, RunError
from trainer_service.run_directory import RunStart
from trainer_service.training.checkpoints import Checkpoint, newest_checkpoint, open_checkpoint, step_of
from trainer_service.training.dataset import DatasetError, DatasetRow, read_rows
from trainer_service.training.export import ExportError, ExportReport, export_adapter, export_model
from trainer_service.training.failures import is_out_of_memory
from trainer_service.training.model_card import model_card
from trainer_service.training.prompts import prepare_prompts
from trainer_service.training.reporting import RunReporter
from trainer_service.training.sealing import seal, sync
from trainer_service.training.sft.examples import prepare_examples
from trainer_service.training.starts import verify_inits

log = structlog.get_logger(__name__)

FINAL_MODEL: Final = "model"
"""Folder of the last checkpoint's model, beside the checkpoints of its attempt."""

_PROBES: Final = 4
_PROBE_TOKENS: Final = 64
_ROWS_LOOKED_AT: Final = 64
_PLAIN_PROBES: Final = (
    "Once upon a time there was",
    "What is the sum of seven and twelve?",
    "def add(a, b):",
)


@dataclass(frozen=True, slots=True)
class Release:
    """What is to be handed out. Addresses are relative to the artifact root."""

    job_id: str
    spec: RunSpec
    artifact_root: Path
    checkpoint_uri: str
    target_uri: str
    form: ModelForm = "merged"
    dtype: WeightType = "float32"


def release_final_model(start: RunStart, reporter: RunReporter) -> None:
    """Exports the last checkpoint of a run whose steps are done, and tells what came of it.

    Whatever goes wrong is told, and raises nothing: the training has succeeded.
    """
    reporter.waiting_for("exporting the model")
    # What training has held, on an accelerator above all.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    attempt = f"jobs/{start.job_id}/attempt-{start.attempt}"
    # An attempt that had no step left to do has taken none of its own.
    uri = newest_checkpoint(start.artifact_root, attempt) or start.checkpoint_uri
    assert uri is not None, "the last step takes a checkpoint"
    step = step_of(uri)
    for earlier in (start.artifact_root / "jobs" / start.job_id).glob("attempt-*"):
        remove_leftovers(earlier / FINAL_MODEL)
    try:
        release = Release(
            job_id=start.job_id,
            spec=start.spec,
            artifact_root=start.artifact_root,
            checkpoint_uri=uri,
            target_uri=f"{attempt}/{FINAL_MODEL}",
        )
        model = hand_out(release, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        reporter.append(ModelExported(step, model, None))
    except Exception as error:
        reporter.append(ModelExported(step, None, describe_export_failure(error)))
    reporter.waiting_for("")


def hand_out(release: Release, device: torch.device) -> ExportedModel:
    """Exports a checkpoint to its target.

    A model that is there already is returned as it is. Raises ExportError, CheckpointError, ModelError.
    """
    root = release.artifact_root
    done = read_exported(root, release.target_uri)
    if done is not None:
        return done
    checkpoint = open_checkpoint(root, release.checkpoint_uri)
    kind = _kind(release)
    folder = root / release.target_uri
    staged = folder.with_name(f".{folder.name}.staged")
    try:
        report = _export(release, checkpoint, staged, device)
        _describe(release, checkpoint.step, kind, staged)
        # What lies there without a manifest is no model.
        shutil.rmtree(folder, ignore_errors=True)
        staged.rename(folder)
    finally:
        remove_leftovers(folder)
    sync(folder.parent)
    log.info("a model was exported", uri=release.target_uri, spread=report.spread, moved=report.from_base)
    model = read_exported(root, release.target_uri)
    assert model is not None
    return model


def _describe(release: Release, step: int, kind: ModelKind, folder: Path) -> None:
    """Writes the card and the manifest, and brings all to disk."""
    spec = release.spec
    card = model_card(spec, job_id=release.job_id, step=step, kind=kind, dtype=release.dtype)
    (folder / "README.md").write_text(card, "utf-8")
    facts = {
        "job_id": release.job_id,
        "step": step,
        "kind": kind,
        "dtype": release.dtype,
        "base_model": spec.base_model,
        "method": spec.method,
    }
    seal(folder, facts)


def describe_export_failure(error: Exception) -> RunError:
    """Why there is no model, and the way to one. What nobody foresaw is logged with its traceback."""
    if is_out_of_memory(error):
        return RunError(
            ErrorCode.OUT_OF_MEMORY,
            "memory ran out while the model was exported. The checkpoint is complete: export it again once "
            "memory is free, or on a trainer with more of it, or download the checkpoint itself",
        )
    if isinstance(error, PlauditError):
        return RunError(getattr(error, "code", ErrorCode.MODEL_ERROR), error.message)
    log.exception("the model was not exported")
    return RunError(
        ErrorCode.MODEL_ERROR,
        f"the export stopped with {type(error).__name__}: {error}. The checkpoint itself is complete; the "
        "log on the trainer says more",
    )


def _kind(release: Release) -> ModelKind:
    h = release.spec.hyperparameters
    if release.form == "merged":
        return "full" if h.lora_rank is None else "merged"
    if h.lora_rank is None:
        raise ExportError("the job has trained all weights, and has no adapters; export it merged")
    if release.spec.init_checkpoints:
        raise ExportError(
            "the job's adapters lie on what other jobs made of the base model, and mean nothing without it; "
            "export it merged"
        )
    return "adapter"


def _export(release: Release, checkpoint: Checkpoint, staged: Path, device: torch.device) -> ExportReport:
    spec = release.spec
    probes = _probes(spec, release.artifact_root, checkpoint.folder)
    if release.form == "adapter":
        return export_adapter(
            checkpoint.folder,
            staged,
            base_model=spec.base_model,
            hyperparameters=spec.hyperparameters,
            probes=probes,
            device=device,
            weight_type=release.dtype,
        )
    return export_model(
        checkpoint.folder,
        staged,
        base_model=spec.base_model,
        hyperparameters=spec.hyperparameters,
        probes=probes,
        device=device,
        inits=verify_inits(release.artifact_root, spec.init_checkpoints),
        weight_type=release.dtype,
    )


def _probes(spec: RunSpec, artifact_root: Path, checkpoint: Path) -> list[list[int]]:
    """Some of the job's own prompts as token ids; other text where its dataset is gone."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
    try:
        rows = list(itertools.islice(read_rows(artifact_root, spec.dataset), _ROWS_LOOKED_AT))
        found = _own_probes(spec, rows, tokenizer)
    except (DatasetError, InvalidArgumentError):
        found = [tokenizer(text)["input_ids"] for text in _PLAIN_PROBES]
    # Logits take a number per token and word of the vocabulary: a whole prompt of each would be gigabytes.
    return [list(ids)[-_PROBE_TOKENS:] for ids in found[:_PROBES]]


def _own_probes(
    spec: RunSpec, rows: Sequence[DatasetRow], tokenizer: PreTrainedTokenizerBase
) -> list[list[int]]:
    h = spec.hyperparameters
    if isinstance(h, SftHyperparameters):
        # Which token ends an example is no matter here.
        prepared = prepare_examples(rows, tokenizer, end_token_ids=frozenset({0}), max_length=h.max_length)
        return [example.token_ids_T.tolist() for example in prepared.examples]
    prompts = prepare_prompts(rows, tokenizer, max_prompt_length=h.max_prompt_length).prompts
    return [list(prompt.token_ids) for prompt in prompts]


def remove_leftovers(folder: Path) -> None:
    """Removes what an export to `folder` that was killed, or failed, has left half written."""
    for name in (f".{folder.name}.staged", f"..{folder.name}.staged.unfinished"):
        shutil.rmtree(folder.with_name(name), ignore_errors=True)
