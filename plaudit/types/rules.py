"""Rules over several hyperparameters, and what is refused because it is not honoured.

A rule names the fields that it reads, so that it is left out where one of them is wrong by itself, and all
that is wrong can be told at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plaudit.errors import FieldViolation
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.training_hyperparameters import TrainingHyperparameters


@dataclass(frozen=True, slots=True)
class Rule:
    """`check` yields a violation for each field that breaks the rule; it reads only `reads`."""

    reads: frozenset[str]
    check: Callable[[Any], Iterator[FieldViolation]]


def _batch_divides(h: GrpoHyperparameters) -> Iterator[FieldViolation]:
    group, batch = h.rollouts_per_prompt, h.global_batch_size
    if batch % group:
        below = max(batch // group, 1) * group
        above = (batch // group + 1) * group
        near = f"{below} or {above}" if below != above else f"{above}"
        yield FieldViolation(
            "global_batch_size",
            f"{batch} is not a multiple of rollouts_per_prompt ({group}), so a step would hold a part of a "
            f"group; {near} would work",
        )


def _micro_batch_divides(h: TrainingHyperparameters) -> Iterator[FieldViolation]:
    micro, batch = h.micro_batch_size, h.global_batch_size
    if micro is not None and batch % micro:
        near = max(d for d in range(1, min(micro, batch) + 1) if batch % d == 0)
        yield FieldViolation(
            "micro_batch_size",
            f"{micro} does not divide global_batch_size ({batch}); {near} would work",
        )


def _alpha_needs_rank(h: TrainingHyperparameters) -> Iterator[FieldViolation]:
    if h.lora_alpha is not None and h.lora_rank is None:
        yield FieldViolation(
            "lora_alpha",
            f"{h.lora_alpha} has no effect without lora_rank; set lora_rank, for example 16, or drop it",
        )


def _four_bits_need_adapters(h: TrainingHyperparameters) -> Iterator[FieldViolation]:
    if h.load_in_4bit and h.lora_rank is None:
        yield FieldViolation(
            "load_in_4bit",
            "true needs lora_rank, as weights of 4 bits are not trained themselves; set lora_rank, for "
            "example 16, or drop it",
        )


def _steps_are_whole(name: str) -> Rule:
    def check(h: TrainingHyperparameters) -> Iterator[FieldViolation]:
        every = getattr(h, name)
        if every is not None and every >= 1 and every != int(every):
            yield FieldViolation(
                name,
                f"{every} is neither a fraction below 1 nor a whole number of steps; {round(every)} would "
                "work",
            )

    return Rule(frozenset({name}), check)


def _evaluations_need_a_dataset(h: GrpoHyperparameters) -> Iterator[FieldViolation]:
    if h.eval_dataset_id is not None:
        return
    for name in _OF_EVALUATIONS:
        value = getattr(h, name)
        if value != GrpoHyperparameters.model_fields[name].default:
            yield FieldViolation(
                name,
                f"{json.dumps(value)} has no effect without eval_dataset_id; set that to a dataset of "
                f"held-out prompts, or leave {name} out",
            )


_OF_EVALUATIONS: Final = ("eval_every", "eval_temperature", "eval_max_prompts")


def _warmup_ends(h: TrainingHyperparameters) -> Iterator[FieldViolation]:
    if h.max_steps is not None and h.warmup_steps >= h.max_steps:
        yield FieldViolation(
            "warmup_steps",
            f"{h.warmup_steps} leaves no step after the warm-up, as max_steps is {h.max_steps}; "
            f"at most {h.max_steps - 1} would work",
        )


@dataclass(frozen=True, slots=True)
class _Honoured:
    """The values of a field that this version acts on; every other one is refused, never ignored."""

    values: tuple[object, ...]
    way_out: str


_HONOURED_BY_GRPO: Final[Mapping[str, _Honoured]] = {
    "rollout_engine": _Honoured(
        ("auto", "transformers"),
        "rollouts are sampled with transformers: 'auto' or 'transformers' would work",
    ),
}


def _honoured_rule(name: str, honoured: _Honoured) -> Rule:
    def check(h: TrainingHyperparameters) -> Iterator[FieldViolation]:
        value = getattr(h, name)
        if value not in honoured.values:
            yield FieldViolation(
                name, f"{json.dumps(value)} is not supported by this version; {honoured.way_out}"
            )

    return Rule(frozenset({name}), check)


SHARED_RULES: Final[tuple[Rule, ...]] = (
    Rule(frozenset({"micro_batch_size", "global_batch_size"}), _micro_batch_divides),
    Rule(frozenset({"lora_rank", "lora_alpha"}), _alpha_needs_rank),
    Rule(frozenset({"load_in_4bit", "lora_rank"}), _four_bits_need_adapters),
    _steps_are_whole("checkpoint_every"),
    Rule(frozenset({"max_steps", "warmup_steps"}), _warmup_ends),
)
"""Rules over the hyperparameters that every method has."""

RULES: Final[tuple[Rule, ...]] = (
    Rule(frozenset({"rollouts_per_prompt", "global_batch_size"}), _batch_divides),
    *SHARED_RULES,
    _steps_are_whole("eval_every"),
    Rule(frozenset({"eval_dataset_id", *_OF_EVALUATIONS}), _evaluations_need_a_dataset),
    *(_honoured_rule(name, honoured) for name, honoured in _HONOURED_BY_GRPO.items()),
)
"""Every rule over the hyperparameters of grpo."""

RULES_OF_METHOD: Final[Mapping[str, tuple[Rule, ...]]] = {"grpo": RULES, "sft": SHARED_RULES}
