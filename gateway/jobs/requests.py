"""What creates a job: its spec, and what the clients of the dialect say in other words.

Rewards may be given as they are (`rewards`), as Python source, or as functions that were uploaded; the latter
two become rewards of the built-in reward server. Fields that have no effect on one's own machines are
accepted, and told in the job's events.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.jobs.job import RequestedGpu
from plaudit.errors import FieldViolation, InvalidArgumentError, NotFoundError
from plaudit.types.validation import check_job_spec, shown

BUILTIN_SERVER: Final = "builtin"
"""Name of the reward server that runs functions."""
FUNCTION_REWARD: Final = "python_function"
"""Its reward that does."""
NO_FUNCTION: Final = "def reward(completions, **columns):\n    return [None for _ in completions]\n"
"""Stands for a function that is not there."""
MAX_SOURCES: Final = 8
MAX_SOURCE_BYTES: Final = 256 * 1024

_WAYS: Final = (
    "rewards",
    "reward_source",
    "reward_sources",
    "reward_function_id",
    "reward_function_ids",
)
"""The fields that say what rewards a job has; a request has one of them."""

_ON_TRAINERS: Final = "jobs run on the trainers that the gateway knows"
NO_EFFECT: Final[Mapping[str, str]] = {
    "gpu": _ON_TRAINERS,
    "provider": _ON_TRAINERS,
    "region": _ON_TRAINERS,
    "checkpoint_destination": "checkpoints are kept under the artifact root",
    "hf_push": "a finished model is not pushed anywhere; download it, and upload it yourself",
}
"""Fields that are accepted without any effect, and why."""

EXTRA_FIELDS: Final = (*_WAYS[1:], "reward_weights", "requires_heartbeat", *NO_EFFECT)
"""Fields of a request that are not those of a job's spec."""

_STEP_SHAPE: Final = ("global_batch_size", "max_prompt_length")
_PLACEHOLDER: Final = "reward_function"
_PLACE: Final = re.compile(r"rewards\[(\d+)\](.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request, read as far as it can be.

    `spec_data` are the fields of TrainingJobSpec, unchecked. `reward_fields` are the fields of the request in
    which the rewards stand, in order, where they are not in `rewards`; `function_ids` the uploaded functions
    that are asked for, None where a reward is none. `no_effect` names the fields without effect.
    `violations` are by fields of the request, `spec_violations` by those of its spec.
    """

    spec_data: object
    reward_fields: tuple[str, ...] = ()
    function_ids: tuple[str | None, ...] = ()
    requires_heartbeat: bool = False
    gpu_requested: RequestedGpu | None = None
    no_effect: tuple[str, ...] = ()
    violations: Sequence[FieldViolation] = ()
    spec_violations: Sequence[FieldViolation] = ()

    @property
    def names_rewards(self) -> bool:
        """Whether it says anything of rewards."""
        return isinstance(self.spec_data, Mapping) and bool(self.spec_data.get("rewards"))

    @property
    def digest(self) -> str:
        """Equal for requests that ask for the same, whichever of the defaults they spell out."""
        spec, _ = check_job_spec(self.spec_data)
        asked = spec.model_dump_json() if spec else json.dumps(self.spec_data, sort_keys=True, default=repr)
        others = json.dumps([self.requires_heartbeat, self.gpu_requested and repr(self.gpu_requested)])
        return hashlib.sha256(f"{asked}\n{others}".encode("utf-8", "backslashreplace")).hexdigest()

    def refusal(self, found: Sequence[FieldViolation]) -> InvalidArgumentError:
        """All that is wrong with it, each by the field in which the request has it."""
        wrong = {violation.field.partition("[")[0] for violation in self.violations}
        at_rewards = not wrong.isdisjoint((*_WAYS, "reward_weights"))
        others = [
            FieldViolation(self.field_of(violation.field), violation.message)
            for violation in found
            # Rewards that could not be read are not missing.
            if not (at_rewards and violation.field == "rewards")
        ]
        return InvalidArgumentError([*self.violations, *others])

    def not_found(self, error: NotFoundError) -> NotFoundError:
        """The error, by the fields in which the request has what is not there."""
        lines = [self._line(line) for line in error.message.split("\n")]
        return NotFoundError("\n".join(lines), field=self.field_of(error.field), reason=error.reason)

    def field_of(self, spec_field: str) -> str:
        """The field of the request that became `spec_field` of the spec."""
        if spec_field == "rewards" and self.reward_fields:
            return self.reward_fields[0].partition("[")[0]
        place = _PLACE.fullmatch(spec_field)
        if place is None or int(place[1]) >= len(self.reward_fields):
            return spec_field
        if place[2] == ".weight":
            return f"reward_weights[{place[1]}]"
        return self.reward_fields[int(place[1])]

    def _line(self, line: str) -> str:
        name, colon, message = line.partition(": ")
        return f"{self.field_of(name)}: {message}" if colon else line


def read_job_request(data: object) -> JobRequest:
    """Reads JSON-like data. What is wrong in the fields beyond the spec is in the request's violations."""
    if not isinstance(data, Mapping):
        return JobRequest(data)
    reading = _Reading(data)
    spec_data = {name: value for name, value in data.items() if name not in EXTRA_FIELDS}
    if "method" in spec_data:
        spec_data["method"] = _method(spec_data["method"])
    bindings = reading.rewards()
    if bindings is not None:
        spec_data["rewards"] = bindings
    return JobRequest(
        spec_data=spec_data,
        reward_fields=tuple(reading.fields),
        function_ids=tuple(reading.function_ids),
        requires_heartbeat=reading.requires_heartbeat(),
        gpu_requested=reading.gpu(),
        no_effect=reading.no_effect(),
        violations=reading.violations,
    )


def with_functions(
    spec_data: object, functions: Sequence[tuple[str, Mapping[str, Any]] | None]
) -> dict[str, Any]:
    """The spec's data with uploaded functions in their places: the name of each and the config that runs it;
    None where a reward is no uploaded function.
    """
    assert isinstance(spec_data, Mapping)
    taken: set[str] = set()
    bindings = []
    for binding, function in zip(spec_data["rewards"], functions, strict=True):
        if function is not None:
            name, config = function
            binding = {**binding, "name": _unique(_metric_name(name), taken), "config": dict(config)}
        taken.add(binding["name"])
        bindings.append(binding)
    return {**spec_data, "rewards": bindings}


def inherited_from(spec_data: object) -> str | None:
    """The job whose rewards the request takes over: the one that it starts from, where it names none."""
    if not isinstance(spec_data, Mapping) or spec_data.get("method", "grpo") != "grpo":
        return None
    resume_from = spec_data.get("resume_from")
    return resume_from.partition("@")[0] if isinstance(resume_from, str) else None


def continued(spec_data: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a job that goes on with `source`, another job's spec: with its rewards, and with the
    shape of its steps where the request says nothing of it, as clients of the dialect leave that out.
    """
    given = spec_data.get("hyperparameters", {})
    if isinstance(given, Mapping):
        given = {**{name: source["hyperparameters"][name] for name in _STEP_SHAPE}, **given}
    return {**spec_data, "hyperparameters": given, "rewards": source["rewards"]}


def clone_data(spec: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a job as `spec` says, but for `overrides`: hyperparameters one by one, null for the
    default; every other field as a whole.
    """
    data = dict(spec)
    if _method(overrides.get("method", spec["method"])) != spec["method"]:
        data |= {"hyperparameters": {}, "rewards": []}
    if any(overrides.get(way) for way in _WAYS):
        del data["rewards"]
    others = {name: value for name, value in overrides.items() if name != "hyperparameters"}
    changes = overrides.get("hyperparameters", {})
    if not isinstance(changes, Mapping):
        return {**data, **others, "hyperparameters": changes}
    merged = {**data["hyperparameters"], **changes}
    hyperparameters = {
        name: value for name, value in merged.items() if not (name in changes and value is None)
    }
    return {**data, **others, "hyperparameters": hyperparameters}


@dataclass
class _Reading:
    data: Mapping[str, Any]
    violations: list[FieldViolation] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    function_ids: list[str | None] = field(default_factory=list)

    def rewards(self) -> list[dict[str, Any]] | None:
        """Bindings of the rewards, where they stand elsewhere than in `rewards`."""
        ways = [way for way in _WAYS if self.data.get(way) not in (None, [])]
        for way in ways[1:]:
            self._wrong(way, f"the rewards are named by {ways[0]} already; send one of the two")
        if not ways or ways[0] == "rewards":
            self._no_weights(bool(ways))
            return None
        way = ways[0]
        given = self.data[way]
        if way.endswith("s"):
            if not isinstance(given, list):
                self._wrong(way, f"{shown(given)} is refused: send a list of texts")
                return None
            if len(given) > MAX_SOURCES:
                self._wrong(way, f"{len(given)} are too many: at most {MAX_SOURCES}")
                return None
        values = given if isinstance(given, list) and way.endswith("s") else [given]
        fields = [f"{way}[{index}]" for index in range(len(values))] if way.endswith("s") else [way]
        right = [self._is_right(name, value, way) for name, value in zip(fields, values, strict=True)]
        weights = self._weights(len(values))
        if not all(right):
            return None
        self.fields = fields
        of_functions = way.startswith("reward_function_id")
        self.function_ids = [value if of_functions else None for value in values]
        names = ["reward"] if len(values) == 1 else [f"reward_{n}" for n in range(1, len(values) + 1)]
        return [
            {
                "name": name,
                "server": BUILTIN_SERVER,
                "reward": FUNCTION_REWARD,
                "config": {_PLACEHOLDER: value} if of_functions else {"source": value},
                **({} if weight is None else {"weight": weight}),
            }
            for name, value, weight in zip(names, values, weights, strict=True)
        ]

    def requires_heartbeat(self) -> bool:
        value = self.data.get("requires_heartbeat")
        if value is not None and not isinstance(value, bool):
            self._wrong("requires_heartbeat", f"{shown(value)} is refused: send true or false")
        return value is True

    def gpu(self) -> RequestedGpu | None:
        gpu = self.data.get("gpu")
        if gpu is None:
            return None
        names = {"gpu_type": "type", "gpu_count": "count"}
        if not isinstance(gpu, Mapping):
            self._wrong("gpu", f'{shown(gpu)} is refused: send {{"gpu_type": "...", "gpu_count": 1}}')
            return None
        for name in gpu:
            if name not in (*names, *names.values()):
                self._wrong(f"gpu.{name}", f"{shown(gpu[name])}: there is no such field; leave it out")
        kind = gpu.get("gpu_type", gpu.get("type", ""))
        count = gpu.get("gpu_count", gpu.get("count", 1))
        if not isinstance(kind, str) or len(kind) > _LONGEST_WORD:
            self._wrong("gpu.gpu_type", f"{shown(kind)} is refused: send the name of a GPU")
        elif not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_GPUS:
            self._wrong("gpu.gpu_count", f"{shown(count)} is refused: send how many, 1 to {_MOST_GPUS}")
        else:
            return RequestedGpu(kind, count)
        return None

    def no_effect(self) -> tuple[str, ...]:
        for name in ("provider", "region"):
            value = self.data.get(name)
            if value is not None and (not isinstance(value, str) or len(value) > _LONGEST_WORD):
                self._wrong(name, f"{shown(value)} is refused: send a name, or leave it out")
        for name in ("checkpoint_destination", "hf_push"):
            value = self.data.get(name)
            if value is not None and not isinstance(value, Mapping):
                self._wrong(name, f"{shown(value)} is refused: send an object, or leave it out")
        return tuple(name for name in NO_EFFECT if self.data.get(name) is not None)

    def _no_weights(self, has_rewards: bool) -> None:
        if self.data.get("reward_weights") is None:
            return
        advice = (
            "give each of rewards its weight instead"
            if has_rewards
            else "there is no reward to weigh; send reward_sources or reward_function_ids with it"
        )
        self._wrong("reward_weights", f"{shown(self.data['reward_weights'])} is refused: {advice}")

    def _weights(self, count: int) -> list[float | None]:
        weights = self.data.get("reward_weights")
        if weights is None:
            return [None] * count
        numbers = isinstance(weights, list) and all(
            isinstance(weight, int | float) and not isinstance(weight, bool) for weight in weights
        )
        if not numbers or len(weights) != count:
            self._wrong(
                "reward_weights",
                f"{shown(weights)} is refused: send as many numbers as there are rewards, {count}",
            )
            return [None] * count
        for index, weight in enumerate(weights):
            if not math.isfinite(weight):
                self._wrong(f"reward_weights[{index}]", f"{shown(weight)} is refused: send a finite number")
        return [weight if math.isfinite(weight) else 1.0 for weight in weights]

    def _is_right(self, name: str, value: object, way: str) -> bool:
        if not isinstance(value, str) or not value.strip():
            what = "the id of a reward function" if "function" in way else "the text of a Python file"
            self._wrong(name, f"{shown(value)} is refused: send {what}")
            return False
        fault = source_fault(value) if "source" in way else None
        if fault is not None:
            self._wrong(name, fault)
        return fault is None

    def _wrong(self, name: str, message: str) -> None:
        self.violations.append(FieldViolation(name, message))


def source_fault(source: str) -> str | None:
    """What makes a text no source that a job can carry; None where it can."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        return f"{size:,} bytes are too many: at most {MAX_SOURCE_BYTES:,}"
    return None


def _method(word: object) -> object:
    """Our word for a method; other clients say sft_text where rows are text."""
    return "sft" if word == "sft_text" else word


def _metric_name(name: str) -> str:
    """A name for metrics that is near to `name`."""
    slug = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_LONGEST_METRIC_NAME]
    return slug if re.fullmatch(r"[a-z][a-z0-9_]*", slug) else "reward"


def _unique(name: str, taken: set[str]) -> str:
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique


_LONGEST_WORD: Final = 128
_MOST_GPUS: Final = 10_000
_LONGEST_METRIC_NAME: Final = 56
