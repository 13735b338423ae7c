"""Calls of a reward function, in the two signatures that there are, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import enum
import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from .failures import cut, raised, shown

OFFERED: Final = ("prompts", "completions", "token_counts", "trainer_state", "log_extra", "log_metric")
"""What a function of the format trl is given besides the columns."""

NOT_SENT: Final = ("completion_ids", "environments")
"""What TRL gives in its own process, and nobody sends."""

_NO_COLUMNS: Final = ("prompt", "completion", "completion_ids")
_MEMORY: Final = "\nThe memory of its process is limited (memory_mb of the server)."
_MOST_METRICS: Final = 32
_MOST_EXTRA_CHARACTERS: Final = 500


class Form(enum.StrEnum):
    """How prompts and completions are given, whatever the dataset's prompt was."""

    TEXT = "text"
    MESSAGES = "messages"

    def prompt(self, turns: list[list[str]]) -> str | list[dict[str, str]]:
        """A prompt, of turns that are (role, content)."""
        if self is Form.TEXT:
            return "\n\n".join(content for _, content in turns)
        return [{"role": role, "content": content} for role, content in turns]

    def completion(self, text: str) -> str | list[dict[str, str]]:
        """A completion."""
        return text if self is Form.TEXT else [{"role": "assistant", "content": text}]


@dataclass(slots=True)
class Call:
    """Completions that are given at once, each of them [prompt, text, tokens, truncated, step]."""

    prompts: list[dict[str, Any]]
    items: list[list[Any]]

    @classmethod
    def all_of(cls, request: dict[str, Any]) -> Iterator[Call]:
        """The calls of a request."""
        prompts, items, size = request["prompts"], request["items"], request["size"]
        for start in range(0, len(items), size):
            yield cls(prompts, items[start : start + size])

    def columns(self) -> dict[str, list[Any]]:
        """The columns of the dataset, each a list with one value per completion."""
        rows = [self.prompts[item[0]]["columns"] for item in self.items]
        names = rows[0].keys() if len(rows) == 1 else dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names if name not in _NO_COLUMNS}


class SampleStatus(enum.Enum):
    """Why sampling stopped, in the words of Miles."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"


@dataclass(slots=True)
class Sample:
    """One completion, as a function of the format miles knows it."""

    index: int
    prompt: str | list[dict[str, str]]
    response: str | list[dict[str, str]]
    response_length: int
    label: Any
    status: SampleStatus
    metadata: dict[str, Any]
    reward: float | None = None
    Status = SampleStatus


@dataclass(slots=True)
class Notes:
    """What the function says beyond its values, by TRL's log_metric and log_extra."""

    count: int
    metrics: dict[str, float] = field(default_factory=dict)
    extra: dict[int, list[str]] = field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        """A number of the call, kept with each of its completions."""
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"log_metric({name!r}) was given {number}; a metric is finite")
        if name in self.metrics or len(self.metrics) < _MOST_METRICS:
            self.metrics[str(name)[:64]] = number

    def log_extra(self, column: str, values: list[Any]) -> None:
        """A text for each completion, kept as its explanation."""
        if len(values) != self.count:
            raise ValueError(f"log_extra({column!r}) has {len(values)} values for {self.count} completions")
        for index, value in enumerate(values):
            told = f"{column}: {cut(str(value), _MOST_EXTRA_CHARACTERS)}"
            self.extra.setdefault(index, []).append(cut(told, _MOST_EXTRA_CHARACTERS))

    def added_to(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The reply, with what there is."""
        if self.metrics:
            reply["metrics"] = self.metrics
        if self.extra:
            reply["extra"] = {index: "; ".join(texts) for index, texts in self.extra.items()}
        return reply


class Function:
    """A reward function that was found."""

    def __init__(self, name: str, function: Callable[..., Any], kind: str, form: Form, filename: str) -> None:
        self._name = name
        self._function = function
        self._kind = kind
        self._form = form
        self._filename = filename
        self._loop = asyncio.new_event_loop()
        parameters = inspect.signature(function).parameters.values()
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._taken = frozenset(p.name for p in parameters)
        self._required = [
            p.name
            for p in parameters
            if p.default is p.empty
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            and p.name not in (*OFFERED, *NOT_SENT)
        ]

    def described(self) -> dict[str, Any]:
        """What the service is told of it."""
        required = self._required if self._kind == "trl" else []
        return {"name": self._name, "format": self._kind, "required_columns": required}

    def answer(self, call: Call) -> dict[str, Any]:
        """Calls the function; whatever it does, the answer is a reply."""
        try:
            return self._answer(call)
        except MemoryError as error:
            # It may hold what it asked for, and the next call would suffer: a fresh process takes over.
            return {"error": raised(error, self._filename) + _MEMORY, "last": True}
        except BaseException as error:
            return {"error": raised(error, self._filename) + self._hint(error)}

    def _answer(self, call: Call) -> dict[str, Any]:
        if self._kind == "miles":
            answers = []
            for index in range(len(call.items)):
                args, sample = self._of_miles(call, index)
                answers.append(self._value(self._result(self._function(args, sample))))
            return {"values": answers}
        notes = Notes(len(call.items))
        values = self._result(self._function(**self._of_trl(call, notes)))
        # A numpy array is no Sequence, but has a length and an order.
        if not isinstance(values, Collection) or isinstance(values, str | bytes | Set | Mapping):
            return {
                "error": f"returned {shown(values)} for {len(call.items)} completions; return a list "
                "with one number, or None, for each, in their order"
            }
        if len(values) != len(call.items):
            return {
                "error": f"returned {len(values)} values for {len(call.items)} completions; return one for "
                "each, in their order, and None where it does not apply"
            }
        return notes.added_to({"values": [self._value(value) for value in values]})

    def _result(self, returned: Any) -> Any:
        return self._loop.run_until_complete(returned) if inspect.isawaitable(returned) else returned

    def _of_trl(self, call: Call, notes: Notes) -> dict[str, Any]:
        offered: dict[str, Any] = call.columns()
        offered["prompts"] = [self._form.prompt(call.prompts[item[0]]["turns"]) for item in call.items]
        offered["completions"] = [self._form.completion(item[1]) for item in call.items]
        offered["token_counts"] = [item[2] for item in call.items]
        offered["trainer_state"] = SimpleNamespace(global_step=call.items[0][4])
        offered["log_extra"] = notes.log_extra
        offered["log_metric"] = notes.log_metric
        if self._takes_all:
            return offered
        return {name: value for name, value in offered.items() if name in self._taken}

    def _of_miles(self, call: Call, index: int) -> tuple[SimpleNamespace, Sample]:
        prompt_index, text, tokens, truncated, step = call.items[index]
        prompt = call.prompts[prompt_index]
        columns = prompt["columns"]
        return SimpleNamespace(rollout_id=step), Sample(
            index=index,
            prompt=self._form.prompt(prompt["turns"]),
            response=self._form.completion(text),
            response_length=tokens,
            label=columns.get("label", columns.get("answer")),
            status=SampleStatus.TRUNCATED if truncated else SampleStatus.COMPLETED,
            metadata=dict(columns),
        )

    def _value(self, value: Any) -> float | dict[str, str] | None:
        """A number, None, or what is wrong with the value."""
        if value is None:
            return None
        if isinstance(value, str | bytes):
            return {"error": f"returned {shown(value)}; a value is a number, or None where it does not apply"}
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        except Exception:
            return {"error": f"returned {shown(value)}; a value is a number, or None where it does not apply"}
        if not math.isfinite(number):
            return {
                "error": f"returned {number}; a value is finite: return None where it does not apply, and "
                "raise where it cannot be computed"
            }
        return number

    def _hint(self, error: BaseException) -> str:
        told = str(error) if isinstance(error, AttributeError | TypeError) else ""
        if self._form is Form.TEXT and "string indices" in told:
            return '\nCompletions are texts here; for lists of messages set form to "messages".'
        if self._form is Form.MESSAGES and "list" in told:
            return '\nCompletions are lists of messages here; for texts set form to "text".'
        return ""
