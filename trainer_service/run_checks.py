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
from trainer_service.capabilities import Capabilities
from trainer_service.sizing import BrokenModelError, UnknownModelError, judge_memory, read_shape
from trainer_service.sizing.prompt_lengths import longest_row_tokens
from trainer_service.unsloth import FIELD as UNSLOTH_FIELD
from trainer_service.unsloth import UnslothEnvironment


@dataclass(frozen=True, slots=True)
class AskedRun:
    """A run that is not started yet. `dataset_uri` is relative to the artifact root; None: not known."""

    base_model: str
    hyperparameters: Hyperparameters
    dataset_uri: str | None


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
    if not isinstance(h, GrpoHyperparameters) or asked.dataset_uri is None:
        return []
    # A dataset's file is named by what is in it.
    sha256 = PurePosixPath(asked.dataset_uri).stem
    known = await counts.known(asked.base_model, sha256, h.max_prompt_length)
    if known is None or known.first_too_long_row is None:
        return []
    others = f" and {known.too_long_count - 1} more" if known.too_long_count > 1 else ""
    return [
        FieldViolation(
            "hyperparameters.max_prompt_length",
            f"{h.max_prompt_length} leaves no room for the prompt of row {known.first_too_long_row + 1}"
            f"{others}: template and other turns alone are longer; {known.max}, the longest "
            "prompt, would work",
        )
    ]


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
