"""What stands against a run before it is started, as far as this machine can tell without loading a model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from plaudit.errors import FieldViolation
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.memory import MemoryEstimate
from plaudit.types.methods import Hyperparameters
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.token_statistics import TokenStatistics
from plaudit.types.validation import shown
from trainer_service.capabilities import Capabilities
from trainer_service.eval_rows import evaluated_rows
from trainer_service.sizing import BrokenModelError, UnknownModelError, judge_memory, read_shape
from trainer_service.sizing.prompt_lengths import longest_row_tokens
from trainer_service.unsloth import FIELD as UNSLOTH_FIELD
from trainer_service.unsloth import UnslothEnvironment


@dataclass(frozen=True, slots=True)
class AskedRun:
    """A run that is not started yet. `dataset_uri` is relative to the artifact root; None: not known.
    `eval_dataset_uri` is that of the held-out prompts; None: not known, or there are none.
    """

    base_model: str
    hyperparameters: Hyperparameters
    dataset_uri: str | None
    eval_dataset_uri: str | None = None


class KnownCounts(Protocol):
    """What is used of `TokenCounts`."""

    async def known(
        self, base_model: str, dataset_sha256: str, max_prompt_length: int
    ) -> TokenStatistics | None:
        """What was counted already; starts nothing."""


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """What is known of it: its memory, or why that is not known yet; why it would fail here; and what may go
    wrong, for people.
    """

    estimate: MemoryEstimate | None
    unknown_reason: str
    obstacles: tuple[FieldViolation, ...]
    warnings: tuple[str, ...] = ()


async def check_run(
    asked: AskedRun,
    capabilities: Capabilities,
    unsloth: UnslothEnvironment,
    artifact_root: Path,
    counts: KnownCounts,
) -> CheckedRun:
    """Looks at the model's files, the dataset, the machine, at what of the dataset's tokens was counted
    before, and where it is asked for at unsloth.
    """
    obstacles = list(_missing(asked.hyperparameters, capabilities))
    obstacles.extend(await _too_long(asked, counts))
    obstacles.extend(await _too_long_held_out(asked, counts))
    if asked.hyperparameters.use_unsloth and (problem := await unsloth.obstacle()):
        obstacles.append(FieldViolation(UNSLOTH_FIELD, problem))
    try:
        shape = await asyncio.to_thread(read_shape, asked.base_model)
    except BrokenModelError as error:
        return CheckedRun(None, str(error), (*obstacles, FieldViolation("base_model", str(error))))
    except UnknownModelError as error:
        return CheckedRun(None, str(error), tuple(obstacles))
    h = asked.hyperparameters
    longest = None
    if asked.dataset_uri is not None:
        columns = ("prompt", "columns") if isinstance(h, SftHyperparameters) else ("prompt",)
        longest = await asyncio.to_thread(longest_row_tokens, artifact_root / asked.dataset_uri, columns)
    verdict = judge_memory(
        shape, h, capabilities.machine, longest_prompt=longest, quantization=capabilities.quantization
    )
    warnings = (verdict.warning,) if verdict.warning else ()
    return CheckedRun(verdict.estimate, "", (*obstacles, *verdict.obstacles), warnings)


async def _too_long(asked: AskedRun, counts: KnownCounts) -> list[FieldViolation]:
    """Prompts that no shortening makes fit, where the dataset's tokens were counted."""
    h = asked.hyperparameters
    if not isinstance(h, GrpoHyperparameters):
        return []
    known = await _known_too_long(asked, asked.dataset_uri, h, counts)
    if known is None:
        return []
    return [
        FieldViolation(
            "hyperparameters.max_prompt_length",
            f"{h.max_prompt_length} leaves no room for the prompt of {_rows(known)}: template and other "
            f"turns alone are longer; {known.max}, the longest prompt, would work",
        )
    ]


async def _too_long_held_out(asked: AskedRun, counts: KnownCounts) -> list[FieldViolation]:
    """The same of the prompts that evaluations take. What is known of is the first such row: where it is not
    taken, others may be all the same, and the run tells.
    """
    h = asked.hyperparameters
    if not isinstance(h, GrpoHyperparameters):
        return []
    known = await _known_too_long(asked, asked.eval_dataset_uri, h, counts)
    if known is None or known.first_too_long_row not in evaluated_rows(known.count, h.eval_max_prompts):
        return []
    return [
        FieldViolation(
            "hyperparameters.eval_dataset_id",
            f"the prompt of {_rows(known)} of {shown(h.eval_dataset_id)} does not fit into max_prompt_length "
            f"({h.max_prompt_length}): template and other turns alone are longer; shorten or leave out such "
            f"rows, name another dataset, or set max_prompt_length to {known.max}, its longest prompt",
        )
    ]


async def _known_too_long(
    asked: AskedRun, uri: str | None, h: GrpoHyperparameters, counts: KnownCounts
) -> TokenStatistics | None:
    """What was counted of a dataset that has prompts which no shortening makes fit."""
    if uri is None:
        return None
    # A dataset's file is named by what is in it.
    known = await counts.known(asked.base_model, PurePosixPath(uri).stem, h.max_prompt_length)
    return None if known is None or known.first_too_long_row is None else known


def _rows(known: TokenStatistics) -> str:
    assert known.first_too_long_row is not None
    others = f" and {known.too_long_count - 1} more" if known.too_long_count > 1 else ""
    return f"row {known.first_too_long_row + 1}{others}"


def _missing(h: Hyperparameters, capabilities: Capabilities) -> list[FieldViolation]:
    """What the run needs and this trainer has not."""
    missing = []
    if h.load_in_4bit and not capabilities.quantization:
        missing.append(
            FieldViolation(
                "hyperparameters.load_in_4bit",
                "true needs bitsandbytes and peft, and this trainer lacks one; install plaudit[trainer] "
                "there, or leave it out",
            )
        )
    return missing
