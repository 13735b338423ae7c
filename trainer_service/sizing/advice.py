"""What would fit where a job asks for more memory than there is: each proposal is reckoned, not guessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plaudit.errors import FieldViolation
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.memory import MemoryEstimate, shown_bytes
from plaudit.types.methods import Hyperparameters
from trainer_service.sizing.estimate import ComputeSettings, compute_settings, estimate_memory
from trainer_service.sizing.machine import Machine
from trainer_service.sizing.shape import ModelShape

_RANK: Final = 16
_MANY: Final = 3
_SHORTEST: Final = 16
"""Tokens below which no shorter completions are proposed."""


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """What a run takes; why it is refused, where it is; and what may go wrong, for people, else ""."""

    estimate: MemoryEstimate
    obstacles: tuple[FieldViolation, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class _Proposal:
    """Other values of some hyperparameters, the first of which a refusal is told at."""

    values: Mapping[str, Any]

    def __str__(self) -> str:
        named = [f"{name} {_shown(value)}" for name, value in self.values.items()]
        return " with ".join(named) if len(named) < _MANY else f"all of {', '.join(named)}"


def judge_memory(
    shape: ModelShape,
    h: Hyperparameters,
    machine: Machine,
    *,
    longest_prompt: int | None,
    quantization: bool,
    settings: ComputeSettings | None = None,
    micro_batch_size: int | None = None,
    world_size: int = 1,
) -> MemoryVerdict:
    """Refuses what cannot do a step on `machine`, and warns of a rollout that may not fit, with what would.

    Arguments are those of `estimate_memory`; `quantization`: whether load_in_4bit can be proposed.
    """

    def estimated(values: Mapping[str, Any]) -> MemoryEstimate:
        # How another proposal computes is its own matter.
        return estimate_memory(
            shape,
            h.model_copy(update=dict(values)),
            machine,
            longest_prompt=longest_prompt,
            settings=None if values else settings,
            micro_batch_size=None if values else micro_batch_size,
            world_size=world_size,
        )

    recomputes = compute_settings(h, on_accelerator=machine.is_accelerator).gradient_checkpointing

    def proposed(fits: Callable[[MemoryEstimate], bool]) -> list[_Proposal]:
        fitting = [p for knob in _knobs(h, quantization) for p in _mildest(knob, estimated, fits)]
        return fitting or list(
            _mildest([_all_at_once(h, quantization, recomputes=recomputes)], estimated, fits)
        )

    estimate = estimated({})
    if not estimate.fits:
        fitting = proposed(lambda e: e.fits)
        field = f"hyperparameters.{next(iter(fitting[0].values))}" if fitting else "base_model"
        refusal = f"memory does not suffice: {estimate.describe()}; {_way_out(fitting, estimate)}"
        return MemoryVerdict(estimate, (FieldViolation(field, refusal),))
    if not estimate.rollout_fits:
        fitting = proposed(lambda e: e.fits and e.rollout_fits)
        return MemoryVerdict(
            estimate,
            warning="memory runs out where all completions of a rollout become as long as "
            f"max_response_length allows: {estimate.describe()}; {_way_out(fitting, estimate)}",
        )
    return MemoryVerdict(estimate)


def _mildest(
    knob: Iterable[_Proposal],
    estimated: Callable[[Mapping[str, Any]], MemoryEstimate],
    fits: Callable[[MemoryEstimate], bool],
) -> Iterator[_Proposal]:
    """The first of a knob's values, the mildest one first, that fits, where one does."""
    for proposal in knob:
        if fits(estimated(proposal.values)):
            yield proposal
            return


def _way_out(fitting: Sequence[_Proposal], estimate: MemoryEstimate) -> str:
    if fitting:
        return f"{' or '.join(str(proposal) for proposal in fitting)} would fit"
    return f"a smaller base model, or a trainer with {shown_bytes(estimate.needed_bytes)}, would do"


def _knobs(h: Hyperparameters, quantization: bool) -> Iterator[Iterable[_Proposal]]:
    yield _smaller_micro_batches(h)
    if h.gradient_checkpointing != "on":
        yield [_Proposal({"gradient_checkpointing": "on"})]
    if isinstance(h, GrpoHyperparameters):
        yield _shorter_responses(h)
        yield _smaller_batches(h)
        if h.kl_coef and h.lora_rank is None:
            yield [_Proposal({"kl_coef": 0.0})]
    if h.lora_rank is None:
        yield [_Proposal({"lora_rank": _RANK})]
    if quantization and not h.load_in_4bit:
        yield [_Proposal({"load_in_4bit": True, **_with_rank(h)})]


def _smaller_micro_batches(h: Hyperparameters) -> Iterator[_Proposal]:
    if h.micro_batch_size is not None:
        for rows in range(h.micro_batch_size - 1, 0, -1):
            if h.global_batch_size % rows == 0:
                yield _Proposal({"micro_batch_size": rows})


def _shorter_responses(h: GrpoHyperparameters) -> Iterator[_Proposal]:
    length = h.max_response_length // 2
    while length >= _SHORTEST:
        yield _Proposal({"max_response_length": length})
        length //= 2


def _smaller_batches(h: GrpoHyperparameters) -> Iterator[_Proposal]:
    unit = math.lcm(h.rollouts_per_prompt, h.micro_batch_size or 1)
    size = h.global_batch_size // 2 // unit * unit
    while size > 0:
        yield _Proposal({"global_batch_size": size})
        size = size // 2 // unit * unit


def _all_at_once(h: Hyperparameters, quantization: bool, *, recomputes: bool) -> _Proposal:
    values: dict[str, Any] = {**_with_rank(h), "micro_batch_size": 1}
    if not recomputes:
        values["gradient_checkpointing"] = "on"
    if quantization:
        values["load_in_4bit"] = True
    if isinstance(h, GrpoHyperparameters):
        values["max_response_length"] = min(h.max_response_length, 256)
    return _Proposal({name: value for name, value in values.items() if getattr(h, name) != value})


def _with_rank(h: Hyperparameters) -> dict[str, Any]:
    return {"lora_rank": _RANK} if h.lora_rank is None else {}


def _shown(value: object) -> str:
    return "true" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
